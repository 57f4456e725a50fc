"""TLS: private connections over any others, for listeners and channels.

`reload.TlsHolder` holds the contexts that are made of `options.TlsOptions`; `listener.TlsListenerSecurity` and
`channel.TlsChannelSecurity` use them for each new connection; `connection.TlsConnection` does the work.
"""
