"""Groups of all types, their members, offsets and lags, as command line and page show them."""
