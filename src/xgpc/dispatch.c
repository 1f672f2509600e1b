/* The other C files are built for each kind of register, with its name in those of their functions. While a module is
 * loaded, its dynamic linker calls the functions below, and takes the builds of this machine. */
#include "cavity.h"
#include "cholesky.h"
#include "largest.h"
#include "local.h"
#include "multinomial.h"
#include "nearest.h"
#include "profiles.h"
#include "shapley.h"
#include "sites.h"
#include "tiles.h"

#define CHOOSE(name)                                                                                                 \
    extern __typeof__(name) name##_base, name##_v3, name##_v4;                                                       \
    static __typeof__(name) *name##_of_machine(void)                                                                 \
    {                                                                                                                \
        __builtin_cpu_init();                                                                                        \
        return __builtin_cpu_supports("x86-64-v4")   ? name##_v4                                                     \
               : __builtin_cpu_supports("x86-64-v3") ? name##_v3                                                     \
                                                     : name##_base;                                                  \
    }                                                                                                                \
    __typeof__(name) name __attribute__((ifunc(#name "_of_machine")));

XG_FUNCTIONS(CHOOSE)
