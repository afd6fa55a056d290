module github.com/dibslock/dibs/contrib/dibsprom

go 1.26.0

require (
	github.com/grafana/grafana-foundation-sdk/go v0.0.18 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
)
