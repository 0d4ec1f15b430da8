package webhook

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/internal/beside/admit"
)

// The answers that people are told of by alerts, beside that which is unknown.
const (
	notUnderstood = "not understood"
	otherAccount  = "other account"
)

// metrics are those of what runs beside another controller.
type metrics struct {
	answers *prometheus.CounterVec
	wrong   *prometheus.GaugeVec
	ends    prometheus.Gauge
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_beside_answers_total",
			Help: "Answers to the API server, by what was asked about (pod, daemonset, placement, node) and what was " +
				"answered. `unknown` means that what is needed could not be read, `other account` that the pod was made by " +
				"another account than --daemonset-account says.",
		}, []string{"about", "answer"}),
		wrong: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_beside_wrong_pods",
			Help: "Pods with a revision that their node was not to have when they were made, or without its content, or " +
				"with images other than those of its digests.",
		}, []string{"namespace", "daemonset"}),
		ends: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "everynode_beside_certificate_expiration_timestamp_seconds",
			Help: "When the webhook's certificate ends, in seconds since 1970.",
		}),
	}
	// A rate of what is not there yet does not see the first one.
	for _, about := range []string{"pod", "daemonset", "placement", "node"} {
		m.answers.WithLabelValues(about, admit.Unknown.String())
		m.answers.WithLabelValues(about, notUnderstood)
	}
	m.answers.WithLabelValues("pod", otherAccount)
	if to == nil {
		return m, nil
	}
	err := errors.Join(to.Register(m.answers), to.Register(m.wrong), to.Register(m.ends))
	if err != nil {
		return nil, fmt.Errorf("register the webhook's metrics: %w", err)
	}
	return m, nil
}

// ShowWrong shows how many pods of a DaemonSet are of a wrong revision.
func (s *Server) ShowWrong(namespace, name string, pods int) {
	s.metrics.wrong.WithLabelValues(namespace, name).Set(float64(pods))
}

// ForgetWrong shows nothing of a DaemonSet any more.
func (s *Server) ForgetWrong(namespace, name string) {
	s.metrics.wrong.DeleteLabelValues(namespace, name)
}
