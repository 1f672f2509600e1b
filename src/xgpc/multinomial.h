/* Sites of multinomial likelihoods: P(the label's latent value is the largest), by a quadrature for each point.
 *
 * ell = log(delta / (C - 1)) + gain p_y, gain = log((1 - delta) (C - 1) / delta), and with independent normal values
 *
 *     p_y = E[prod_{c != y} Phi(z_c)], z_c = (g - m_c) / s_c, g ~ N(m_y, s_y^2), s_c^2 = v_c + noise.
 *
 * Beside a fine rule the largest error of p_y is 2e-9, for 2 to 300 classes and ratios of their standard deviations up
 * to 1e8. Those of its derivatives by a mean and by a standard deviation, in units of that standard deviation, are 1e-9
 * for the other classes and 4e-8 for the label. A row of C classes takes about .08 C microseconds, .14 C for 100, up to
 * twice that where ratios are large, in 512-bit registers. */
#pragma once

#include "moments.h"

/* Number of doubles of tables, with more scratch of a chunk behind them. */
ptrdiff_t xg_multinomial_scratch(ptrdiff_t classes);
/* Tables for a number of classes: abscissas and weights of the quadrature rules, and their steps. */
void xg_multinomial_tables(ptrdiff_t classes, double *tables);
/* A chunk of points, with scratch as in moments.h. */
void xg_multinomial_chunk(const xg_moments *at, double noise, double delta, double *tables, double *scratch,
                          const xg_site_arrays *out);
