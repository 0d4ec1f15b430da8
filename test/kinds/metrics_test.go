package kinds

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/beside/webhook"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/testenv"
	"github.com/everynode/everynode/internal/testenv/promtool"
	"github.com/everynode/everynode/internal/version"
)

// taken keeps what is registered with it.
type taken struct {
	*prometheus.Registry
	mu  sync.Mutex
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (m *taken) Register(c prometheus.Collector) error {
	m.mu.Lock()
	m.all = append(m.all, c)
	m.mu.Unlock()
	return m.Registry.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (m *taken) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

// metric is one of a loop's, as it describes itself.
type metric struct {
	kind   string
	help   string
	labels []string
}

// described has what a metric says of itself.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// metrics are all that were registered, those too that have no value yet.
func (m *taken) metrics(t *testing.T) map[string]metric {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]metric{}
	for _, c := range m.all {
		descriptions := make(chan *prometheus.Desc, 1)
		go func() { defer close(descriptions); c.Describe(descriptions) }()
		for d := range descriptions {
			parts := described.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("a metric describes itself as %s", d)
			}
			var help string
			if err := json.Unmarshal([]byte(parts[2]), &help); err != nil {
				t.Fatal(err)
			}
			of := metric{kind: kindOf(c), help: help}
			if parts[3] != "" {
				of.labels = strings.Split(parts[3], ",")
			}
			out[parts[1]] = of
		}
	}
	return out
}

func kindOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	case prometheus.GaugeFunc: // also a CounterFunc, of which there is none
		return "gauge"
	}
	return "unknown"
}

const (
	metricsPage   = "../../docs/metrics.md"
	dashboardFile = "../../examples/grafana-dashboard.json"
)

// row is a line of the page's tables.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| ([^|]*) \\| (.+) \\|$")

// onlySeveral is what the page says of metrics that a server which is alone does not have.
const onlySeveral = " Of several servers only."

// elsewhere adds what a server which is alone does not have: the metrics of one of several, and of a controller beside
// another.
func elsewhere(t *testing.T, all *taken) {
	t.Helper()
	if _, err := webhook.New(webhook.Config{Registerer: all}); err != nil {
		t.Fatal(err)
	}
	keys, err := pki.OpenPeers(t.TempDir(), "127.0.0.1", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Peers: &etcd.Peers{
		Name: "one", URL: "https://" + address, Listen: address, Keys: keys, Version: version.Kubernetes()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Close)
	all.all = append(all.all, database.Metrics()...)
}

// TestMetricsPage: the page lists what the server really has, and nothing else.
func TestMetricsPage(t *testing.T) {
	all := &taken{Registry: prometheus.NewRegistry()}
	testenv.Start(t, func(o *config.Options) { o.Metrics = all })
	elsewhere(t, all)
	have := all.metrics(t)
	if len(have) < 20 {
		t.Fatalf("the server has %d metrics", len(have))
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	// What nodes and backups show is not the server's without them.
	section, _, _ := strings.Cut(string(page), "\n## Nodes\n")
	section = strings.ReplaceAll(section, onlySeveral+" |", " |")
	listed := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(section, -1) {
		listed[r[1]] = true
		is, known := have[r[1]]
		switch labels := strings.ReplaceAll(strings.Join(is.labels, ", "), "  ", " "); {
		case !known && !strings.HasPrefix(r[1], "everynode_backup_"):
			t.Errorf("the page lists %s, which the server does not have", r[1])
		case known && (r[2] != is.kind || strings.Trim(r[3], "` ") != labels || r[4] != is.help):
			t.Errorf("%s is\n%s\nand the page says\n%s", r[1], line(r[1], is), r[0])
		}
	}
	for name, is := range have {
		if !listed[name] {
			t.Errorf("the page does not list\n%s", line(name, is))
		}
	}
}

func line(name string, m metric) string {
	return "| `" + name + "` | " + m.kind + " | " + strings.Join(m.labels, ", ") + " | " + m.help + " |"
}

// TestGrafanaDashboard: its questions are about metrics of the page, or of the API server's
// library, and Prometheus understands them.
func TestGrafanaDashboard(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		known[name[1]] = true
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	questions, ids := 0, []int{}
	name := regexp.MustCompile(`\b((?:everynode|daemonset|scheduler|job|cronjob|apiserver|etcd|workqueue|process|go)_[a-z_]+)\b`)
	for _, p := range dashboard.Panels {
		if slices.Contains(ids, p.ID) {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids = append(ids, p.ID)
		for _, target := range p.Targets {
			questions++
			named := name.FindAllStringSubmatch(target.Expr, -1)
			if len(named) == 0 {
				t.Errorf("panel %q asks for no metric: %s", p.Title, target.Expr)
			}
			for _, n := range named {
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(n[1], "")
				if !known[n[1]] && !known[base] {
					t.Errorf("panel %q asks for %s, which docs/metrics.md does not have", p.Title, n[1])
				}
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "n", "$daemonset", "d").Replace(target.Expr)
			quoted, err := json.Marshal(expr)
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("  - record: a:b\n    expr: " + string(quoted) + "\n")
		}
	}
	if questions < 10 {
		t.Errorf("the dashboard asks only %d questions", questions)
	}
	tool := promtool.Find(t, "../..")
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, &rules)
	}
}
