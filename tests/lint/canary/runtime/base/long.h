// The header of the long file.
#pragma once
