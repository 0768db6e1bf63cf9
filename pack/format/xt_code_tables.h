// The matrices and tables of the XT codes. Found by search: tables by annealing towards evenly
// spread sets of successors, then tables and matrices together by the mean squared error of an
// encoder on unit Gaussians (pack/FORMAT.md).
#pragma once

#include "pack/format/xt_code.h"

namespace hearth {

inline constexpr XtCode kXt2 = {
    .bits = 2,
    .phase_count = 4,
    .older = {{
        XtMatrix{0xA5, 0x4D, 0xCA, 0x18, 0x25, 0x30, 0xBB, 0x1D},
        XtMatrix{0x6D, 0x13, 0x2C, 0xDE, 0xD6, 0x23, 0x7B, 0x2E},
        XtMatrix{0xD9, 0x1E, 0x3F, 0x72, 0x1F, 0xCB, 0x19, 0x71},
        XtMatrix{0x17, 0x44, 0x94, 0xD6, 0x49, 0x3C, 0x9D, 0x5C},
    }},
    .table = {{
        {12, 8, 12, 9, 11, 10, 17, 11, 10, 10, 10, 8, 14, 6, 14, 5},
        {-5, -5, 0, -7, -5, -8, -3, -9, -4, -13, -2, -10, -7, -8, -6, -5},
        {2, -20, -10, 13, 24, -10, -33, 2, -21, 10, -2, -7, -7, -2, 11, -20},
    }},
    .level_deviation = 15.0f,
};

inline constexpr XtCode kXt3 = {
    .bits = 3,
    .phase_count = 8,
    .older = {{
        XtMatrix{0xE4, 0x60, 0xBE, 0x31, 0x20, 0x1E, 0x69, 0xFE},
        XtMatrix{0xDA, 0x82, 0xEE, 0xE8, 0xB9, 0x99, 0x7F, 0x5C},
        XtMatrix{0x7C, 0x29, 0x4D, 0xFD, 0xAF, 0xE5, 0x93, 0x25},
        XtMatrix{0x3C, 0xD6, 0x54, 0x2D, 0x4D, 0xFA, 0xD7, 0x14},
        XtMatrix{0x27, 0xA0, 0xAE, 0xB3, 0xC8, 0xE9, 0x23, 0x2F},
        XtMatrix{0x8A, 0xF2, 0x21, 0x1F, 0x9E, 0x41, 0x91, 0xC5},
        XtMatrix{0xB1, 0x0B, 0xEC, 0xB5, 0x56, 0x3B, 0x45, 0x1E},
        XtMatrix{0x6F, 0x93, 0x42, 0x7E, 0xCB, 0xC8, 0xFE, 0x17},
    }},
    .table = {{
        {9, -4, 4, 2, 6, 2, 10, -2, 5, 3, 6, 1, 4, 2, 2, 4},
        {0, -2, 5, -5, 5, -8, 1, 0, 5, -4, 2, 0, 2, -2, 9, -5},
        {4, -13, -16, 18, -32, 6, -7, -3, 25, -25, 0, -4, -11, 6, 8, -13},
    }},
    .level_deviation = 15.0f,
};

inline constexpr XtCode kXt4 = {
    .bits = 4,
    .phase_count = 2,
    .older = {{
        XtMatrix{0x77, 0x06, 0xF8, 0x5D, 0x86, 0x90, 0x02, 0x4A},
        XtMatrix{0xD6, 0xBD, 0xA3, 0x40, 0x1B, 0xE9, 0xC8, 0xCB},
    }},
    .table = {{
        {2, 7, -3, -3, -7, -3, 2, 1, -8, -3, 3, 0, -13, 1, 1, -1},
        {6, 7, 0, -1, -8, 5, -3, 5, 8, 7, -2, -2, 7, 5, 0, -5},
        {-25, -5, 14, -28, -8, 19, -1, -1, 10, 31, 6, -8, 2, -12, -5, 6},
    }},
    .level_deviation = 15.0f,
};

}  // namespace hearth
