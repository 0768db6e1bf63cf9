// The RAM tier.
#pragma once
