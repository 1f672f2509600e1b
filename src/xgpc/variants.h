/* For files that are compiled once for each instruction set, with its own width and names; see variants.c. */
#ifndef XGPC_VARIANTS_H
#define XGPC_VARIANTS_H

#define XG_JOINED(name, variant) name##_##variant
#define XG_EXPANDED(name, variant) XG_JOINED(name, variant)
#define XG_VARIANT(name) XG_EXPANDED(name, XG_INSTRUCTIONS)

#endif
