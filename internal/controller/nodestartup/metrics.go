package nodestartup

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/api/v1alpha1"
)

// How a node was opened.
const (
	openedStarted = "started" // all daemons were available
	openedTimeout = "timeout" // the last group's timeout went on without some
	openedGone    = "gone"    // there is no such NodeStartup any more
	openedBarred  = "barred"  // beside another controller, it would never get a daemon that lacks the toleration
)

type metrics struct {
	starting, without *prometheus.GaugeVec
	opened            *prometheus.CounterVec
	notClosed         prometheus.Counter
	seconds           prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		starting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "everynode_nodestartup_starting_nodes",
			Help: "Nodes that have not started all groups of the NodeStartup that they follow."},
			[]string{"nodestartup"}),
		without: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "everynode_nodestartup_started_without_nodes",
			Help: "Nodes on which a timeout went on without a daemon."}, []string{"nodestartup"}),
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "everynode_nodestartup_opened_total",
			Help: "Nodes that were opened, by how: started, timeout, gone, barred."}, []string{"how"}),
		notClosed: prometheus.NewCounter(prometheus.CounterOpts{Name: "everynode_nodestartup_not_closed_total",
			Help: "Nodes that stayed open and were to be closed, beside another DaemonSet controller."}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "everynode_nodestartup_open_seconds",
			Help: "Time from a node's last daemon becoming available, by the pod's own word to the second, to the " +
				"node being opened.",
			Buckets: []float64{.5, 1, 1.5, 2, 5, 10, 30, 60}}),
	}
	if registerer == nil {
		return m, nil
	}
	return m, errors.Join(registerer.Register(m.starting), registerer.Register(m.without),
		registerer.Register(m.opened), registerer.Register(m.notClosed), registerer.Register(m.seconds))
}

// open counts a node that was opened so long after its last daemon.
func (m *metrics) open(how string, after time.Duration) {
	m.opened.WithLabelValues(how).Inc()
	if how == openedStarted {
		m.seconds.Observe(max(after, 0).Seconds())
	}
}

func (m *metrics) show(name string, status *v1alpha1.NodeStartupStatus) {
	m.starting.WithLabelValues(name).Set(float64(status.StartingNodes))
	m.without.WithLabelValues(name).Set(float64(status.OpenedByTimeout))
}

func (m *metrics) forget(name string) {
	m.starting.DeleteLabelValues(name)
	m.without.DeleteLabelValues(name)
}
