package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the proxy's own. Names, labels and buckets are those of kube-proxy, so
// that dashboards and alerts made for it work.
type metrics struct {
	registry                 *prometheus.Registry
	sync, whole, partial     prometheus.Observer
	lastSync, lastQueued     prometheus.Gauge
	services, slices, failed prometheus.Counter
	healthz, livez           *prometheus.CounterVec
}

func newMetrics() *metrics {
	const subsystem = "kubeproxy"
	family := []string{"ip_family"}
	m := &metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	seconds := func(name, help string) prometheus.Observer {
		h := prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Subsystem: subsystem,
				Name:      name,
				Help:      help,
				Buckets:   prometheus.ExponentialBuckets(0.001, 2, 15),
			},
			family,
		)
		m.registry.MustRegister(h)
		return h.WithLabelValues("IPv4")
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, family)
		m.registry.MustRegister(g)
		return g.WithLabelValues("IPv4")
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	m.sync = seconds("sync_proxy_rules_duration_seconds", "Time to bring the rules up to date.")
	m.whole = seconds("sync_full_proxy_rules_duration_seconds", "Time to write all rules.")
	m.partial = seconds("sync_partial_proxy_rules_duration_seconds", "Time to write the rules that change.")
	m.lastSync = gauge("sync_proxy_rules_last_timestamp_seconds", "When the rules were last brought up to date.")
	m.lastQueued = gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When news last came that rules may depend on.")
	m.services = counter("sync_proxy_rules_service_changes_total", "News about Services.", family).WithLabelValues("IPv4")
	m.slices = counter("sync_proxy_rules_endpoint_changes_total", "News about EndpointSlices.", family).WithLabelValues(
		"IPv4",
	)
	m.failed = counter("sync_proxy_rules_nftables_sync_failures_total", "Times that rules could not be written.", family).
		WithLabelValues("IPv4")
	m.healthz = counter("proxy_healthz_total", "Answers of /healthz, by their code.", []string{"code"})
	m.livez = counter("proxy_livez_total", "Answers of /livez, by their code.", []string{"code"})
	return m
}

// synced notes an attempt that took this long.
func (m *metrics) synced(took time.Duration, whole bool, now time.Time, err error) {
	if err != nil {
		m.failed.Inc()
		return
	}
	m.sync.Observe(took.Seconds())
	if whole {
		m.whole.Observe(took.Seconds())
	} else {
		m.partial.Observe(took.Seconds())
	}
	m.lastSync.Set(unix(now))
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

// pages are what is told at the port of the metrics.
func (m *metrics) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	text := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write([]byte(text)) // Who asked may be gone.
		})
	}
	text("/healthz", "ok")
	text("/proxyMode", "nftables")
	return mux
}

func count(of *prometheus.CounterVec, code int) { of.WithLabelValues(strconv.Itoa(code)).Inc() }
