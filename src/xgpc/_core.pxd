# The C functions, and what they take; the headers describe them.
from libc.stdint cimport int32_t, int64_t

ctypedef double* doubles
ctypedef const double* const_doubles

cdef extern from "vmath.h" nogil:
    void xg_exp_array(Py_ssize_t n, const double* x, double* out)
    void xg_normal_array(Py_ssize_t n, const double* x, double* cdf, double* pdf)
    void xg_clip_precision(Py_ssize_t n, const double* mean, double* precision, double* linear)
    double xg_natural_gradient(Py_ssize_t n, double scale, const double* target, const double* current, double* g)
    double xg_move_average(Py_ssize_t n, double weight, const double* g, double* mean)
    double xg_distance(Py_ssize_t n, const double* x, const double* y)
    void xg_step(Py_ssize_t n, double rate, const double* g, double* current)

cdef extern from "profiles.h" nogil:
    enum:
        XG_MATERN_12, XG_DOT_PRODUCT, XG_AXIS_MATERN_12, XG_FAMILY_COUNT
        XG_SET, XG_ADD, XG_MULTIPLY
    const char* xg_family_name(int i)
    bint xg_is_axis_aligned(int family)
    ctypedef struct Rows "xg_rows":
        const char* X
        Py_ssize_t row_stride, feature_stride
        bint is_single
        const Py_ssize_t* index
        Py_ssize_t start, n
    ctypedef struct xg_profile_tile:
        int family
        double shape
        Py_ssize_t n, m, d
        const_doubles x, x2, z, z2, cross
    void xg_profile_values(const xg_profile_tile* tile, int mode, double scale, double* out)
    void xg_profile_slopes(const xg_profile_tile* tile, double scale, const double* g, double* out, double* row_sum,
                           double* column_sum, double* sums)
    void xg_half_distances(const xg_profile_tile* tile, double* out)
    void xg_axis_logarithms(const xg_profile_tile* tile, double* out)
    void xg_axis_slopes(const xg_profile_tile* tile, const double* weight, double* by_points, double* by_scales)
    void xg_axis_row_slopes(const xg_profile_tile* tile, const double* weight, double* out)
    double xg_scale_rows(const Rows* rows, Py_ssize_t d, const double* centre, const double* scale, double* x,
                         double* x2)
    void xg_add_squares(Py_ssize_t n, Py_ssize_t d, const double* weight, const double* x, double* sum)

cdef extern from "tiles.h" nogil:
    void xg_squared_norms(Py_ssize_t rows, Py_ssize_t m, const double* a, double* out)
    void xg_means(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, double* mean)
    void xg_gradient_tile(Py_ssize_t rows, Py_ssize_t m, const double* precision, const double* residual,
                          const double* alpha, const double* product, bint accumulate, double* g)
    void xg_narrow(Py_ssize_t n, const double* x, float* out)
    void xg_widen(Py_ssize_t n, const float* x, double* out)
    bint xg_is_wide()
    Py_ssize_t xg_triangle_scratch(Py_ssize_t rows, Py_ssize_t m)
    void xg_times_lower_t(Py_ssize_t rows, Py_ssize_t m, const double* lower, double* a, double* scratch)
    void xg_marginals(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* w, const double* lower, double* b,
                      double* mean, double* norms, double* spread, double* scratch)
    void xg_marginals_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* w, const float* lower,
                             float* b, double* mean, double* norms, double* spread, double* scratch)
    void xg_add_outer(Py_ssize_t rows, Py_ssize_t m, const double* a, const double* s, const double* r, double* P,
                      double* h, double* scratch)
    void xg_add_outer_single(Py_ssize_t rows, Py_ssize_t m, const float* a, const double* s, const double* r,
                             double* P, double* h, double* scratch)

cdef extern from "cholesky.h" nogil:
    Py_ssize_t XG_CHOLESKY_MOST
    Py_ssize_t xg_cholesky_scratch(Py_ssize_t m)
    int xg_cholesky(Py_ssize_t m, const double* a, double* factor, double* inverse, double* scratch)

cdef extern from "moments.h" nogil:
    ctypedef struct xg_moments:
        Py_ssize_t classes, n, m_stride, stride
        const_doubles m, v, y
    ctypedef struct xg_site_arrays:
        doubles ell, precision "lambda", linear "r"

cdef extern from "softmax.h" nogil:
    Py_ssize_t XG_HAZARD_COLUMNS, XG_HAZARD_DEGREE
    ctypedef struct xg_hazard_table:
        Py_ssize_t rows
        const double* values
    void xg_softmax_scores(const xg_moments* at, const xg_hazard_table* table, double* scratch, double* value,
                           double* by_mean, double* by_variance)
    void xg_softmax_vjp(const xg_moments* at, const double* by_lambda, const double* by_r,
                        const xg_hazard_table* table, double* scratch, double* by_mean, double* by_variance)

cdef extern from "sites.h" nogil:
    enum:
        XG_SITE_COUNT
    ctypedef struct xg_likelihood:
        int kind
        const double* prior_mean
        Py_ssize_t n_parameters
        const double* parameters
        xg_hazard_table table
    const char* xg_site_likelihood(int i)
    const char* xg_site_bound(int i)
    bint xg_site_is_multi_class(int i)
    void xg_sites(const xg_likelihood* likelihood, const xg_moments* at, double* scratch, const xg_site_arrays* out)
    int xg_parameter_gradient(const xg_likelihood* likelihood, const xg_moments* at, const double* weight,
                              double* by_parameter)
    void xg_logistic_normal_mean_array(Py_ssize_t n, const double* m, const double* v, double* out)
    Py_ssize_t xg_logistic_normal_logs(Py_ssize_t n, const double* m, const double* v, double least, Py_ssize_t* thin,
                                       double* out)
    Py_ssize_t xg_multiclass_scratch(Py_ssize_t classes)

cdef extern from "cavity.h" nogil:
    enum:
        XG_CAVITY_LOGIT, XG_CAVITY_PROBIT
    void xg_cavity_scores(int link, const xg_moments* at, double* value, double* d_m, double* d_v)
    void xg_cavity_sites(int link, const xg_moments* at, double* precision, double* linear)
    void xg_cavity_vjp(int link, const xg_moments* at, const double* d_precision, const double* d_linear,
                       double* d_m, double* d_v)

cdef extern from "largest.h" nogil:
    ctypedef struct xg_table:
        Py_ssize_t rows, columns
        double low, high
        const_doubles psi, slope
    ctypedef struct xg_values:
        const xg_table* table
        Py_ssize_t classes
        const_doubles mean, scale, row
        double first, end, reach
    Py_ssize_t xg_largest_scratch(const xg_table* table, Py_ssize_t classes)
    void xg_largest(const xg_values* at, double* scratch, double* log_p)
    void xg_largest_slopes(const xg_values* at, double* scratch, double* slopes)

cdef extern from "shapley.h" nogil:
    ctypedef struct xg_product_games:
        Py_ssize_t players, games, n_parts, n_nodes
        const_doubles part, node, weight, slope
    Py_ssize_t xg_shapley_scratch(const xg_product_games* games)
    void xg_shapley(const xg_product_games* games, double* scratch, double* out)

cdef extern from "nearest.h" nogil:
    enum:
        XG_PANEL
    ctypedef struct xg_nearest:
        Py_ssize_t n, d, p, most
        int power
        const_doubles mean, directions, rows
        int64_t* order
        float* panels
        float* leaves
        float* groups
    Py_ssize_t xg_panels(Py_ssize_t n)
    Py_ssize_t xg_leaves(Py_ssize_t n)
    Py_ssize_t xg_coordinates(const xg_nearest* tree)
    void xg_nearest_build(xg_nearest* tree, const double* rows, const float* places, Py_ssize_t n_places,
                          void* scratch)
    size_t xg_nearest_build_scratch(const xg_nearest* tree)
    size_t xg_nearest_scratch(const xg_nearest* tree, Py_ssize_t k)
    void xg_nearest_of(const xg_nearest* tree, const double* points, Py_ssize_t first, Py_ssize_t r, Py_ssize_t k,
                       void* scratch, int32_t* out)

cdef extern from "local.h" nogil:
    ctypedef struct xg_local_kernel:
        Py_ssize_t n_terms, n_factors, n_features
        const double* variance
        const int* noise
        const Py_ssize_t* first
        const int* family
        const double* shape
    ctypedef struct xg_local_support:
        Py_ssize_t n, m, n_classes
        const_doubles x, a, residual, precision, linear
    ctypedef struct xg_local_rows:
        Py_ssize_t n, k
        double* blocks
        const_doubles x, a, residual
        const int32_t* index
        const int32_t* n_earlier
    ctypedef struct xg_local_conditional:
        Py_ssize_t first, n, b_first, b_n
        doubles b, variance, mean, gamma
    ctypedef struct xg_local_pulled:
        const_doubles S, v, d_form, d_dot, d_variance, d_mean
        doubles gamma, chi, b, u
    ctypedef struct xg_local_gradient:
        xg_local_pulled set[2]
        doubles d_a, d_diagonal, by_near, terms, shapes, scales
    Py_ssize_t xg_local_scratch(const xg_local_kernel* kernel, const xg_local_support* support, Py_ssize_t k)
    void xg_local_condition(const xg_local_kernel* kernel, const xg_local_support* support, const xg_local_rows* rows,
                            Py_ssize_t first, Py_ssize_t last, double* scratch, const xg_local_conditional* out,
                            const xg_local_gradient* gradient)
    ctypedef struct xg_scatter_rows:
        Py_ssize_t n, k, m, n_classes, n_sets
        const int32_t* index
        const int32_t* n_earlier
        const_doubles by_near
        const xg_local_pulled* set
    void xg_scatter_add(const xg_scatter_rows* rows, double* d_a, double* d_near)
