// Package dibsprom exports lock metrics to Prometheus.
//
//	metrics, err := dibsprom.New(prometheus.DefaultRegisterer, dibsprom.Config{})
//	if err != nil {
//		return err
//	}
//	locks := dibs.New(store, dibs.Observe(metrics.Hooks()))
//
// The metrics are:
//
//	dibs_acquire_seconds{class,kind,result}  histogram  duration of each call that acquires
//	dibs_held_seconds{class,kind,end}        histogram  duration of each lease, when it ends
//	dibs_holding{class}                      gauge      leases held now
//	dibs_waiting{class}                      gauge      calls in a wait queue now
//	dibs_lost_total{class,reason}            counter    leases that ended before their release
//	dibs_renew_failed_total{class}           counter    renewals without a known outcome
//	dibs_renew_seconds                       histogram  duration of each batch of renewals
//	dibs_headroom_ratio                      histogram  share of the time that was left at a renewal
//	dibs_handoff_seconds                     histogram  duration of hand-offs, from the request to the lease
//	dibs_degraded                            gauge      Clients that receive no notifications now
//
// The values of result and end are this package's constants, and the values of reason are
// dibs.Reason's. docs/observe.md describes the alerts. The files grafana.json and alerts.yml,
// beside this package, are a dashboard and alert rules.
//
// # Classes
//
// A class groups lock names: order:1 and order:2 are in the class order:*. In the class, * replaces
// each number, each UUID, and each word with at least 8 letters and digits that contains a digit.
// Config.Class replaces this rule. There are at most Config.MaxClasses classes, and "other" for
// later names. So the number of series is bounded, whatever the names are. A multi-lock counts in
// its first name's class.
//
// A class is a part of a lock's name, visible to everybody who can read the metrics. No metric
// contains an owner token or a lock's label.
//
// # Cost
//
// A lock and an unlock write two histograms, and a gauge twice. They allocate nothing. There is no
// goroutine.
//
// # Versions
//
// Tested with v1.20.4 to v1.25.0 of github.com/prometheus/client_golang.
package dibsprom
