// A header that no test includes.
#pragma once
