/* Files that are built once for each kind of register, with their own width and names, and which build a machine takes:
 * see meson.build. */
#ifndef XGPC_VARIANTS_H
#define XGPC_VARIANTS_H

#define XG_JOINED(name, variant) name##_##variant
#define XG_EXPANDED(name, variant) XG_JOINED(name, variant)
#define XG_VARIANT(name) XG_EXPANDED(name, XG_INSTRUCTIONS)

#ifdef XG_HAVE_TARGET_CLONES
#define XG_CHOSEN(call)                                                                                              \
    (__builtin_cpu_supports("x86-64-v4")   ? call(v4)                                                                \
     : __builtin_cpu_supports("x86-64-v3") ? call(v3)                                                                \
                                           : call(base))
#else
#define XG_CHOSEN(call) call(base)
#endif

#endif
