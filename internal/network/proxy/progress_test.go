package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/network/proxy/changes"
)

// pages are the answers at the proxy's own ports.
type pages struct {
	t        *testing.T
	clock    *testclock.FakeClock
	progress *progress
	metrics  *metrics
	health   http.Handler
}

func newPages(t *testing.T) *pages {
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	p := &Proxy{progress: &progress{clock: clock}, metrics: newMetrics()}
	return &pages{t: t, clock: clock, progress: p.progress, metrics: p.metrics, health: p.healthPages()}
}

func get(t *testing.T, from http.Handler, path string) (code int, body string) {
	t.Helper()
	r := httptest.NewRecorder()
	from.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	text, err := io.ReadAll(r.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.Code, string(text)
}

func (p *pages) expect(when string, healthz, livez int, lastUpdated string) {
	p.t.Helper()
	for path, want := range map[string]int{"/healthz": healthz, "/livez": livez} {
		code, body := get(p.t, p.health, path)
		if code != want {
			p.t.Errorf("%s %s answers %d, want %d", when, path, code, want)
		}
		var said struct {
			LastUpdated, CurrentTime string
			NodeEligible             *bool
		}
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			p.t.Fatalf("%s %s says %s: %v", when, path, body, err)
		}
		if want := "2030-01-01 " + lastUpdated + " +0000 UTC"; said.LastUpdated != want {
			p.t.Errorf("%s %s was updated last at %s, want %s", when, path, said.LastUpdated, want)
		}
		if (said.NodeEligible != nil) != (path == "/healthz") {
			p.t.Errorf("%s %s says %s", when, path, body)
		}
	}
}

// TestHealth: late news make the proxy unwell, a node that is to go only the node.
func TestHealth(t *testing.T) {
	p := newPages(t)
	p.progress.done()
	p.clock.Step(time.Hour)
	p.expect("before any news", 200, 200, "13:00:00")
	p.progress.news()
	p.clock.Step(late - time.Second)
	p.expect("with news", 200, 200, "13:00:59")
	p.progress.take()
	p.clock.Step(time.Second)
	p.expect("while they are written for long", 503, 503, "12:00:00")
	p.progress.done()
	p.clock.Step(time.Hour)
	p.expect("after that", 200, 200, "14:01:00")

	// News that come while others are written are not done with these.
	p.progress.news()
	p.progress.take()
	p.progress.news()
	p.progress.done()
	p.clock.Step(late)
	p.expect("with news from in between", 503, 503, "14:01:00")
	// What failed is as old as it was.
	p.progress.take()
	p.progress.news()
	p.progress.take()
	p.expect("after a failure", 503, 503, "14:01:00")
	p.progress.done()
	p.expect("in the end", 200, 200, "14:02:00")

	p.progress.node(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: leaving}}}})
	p.expect("when the node is to go", 503, 200, "14:02:00")
	p.progress.node(&corev1.Node{})
	p.expect("when it stays", 200, 200, "14:02:00")
	now := metav1.NewTime(p.clock.Now())
	p.progress.node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}})
	p.expect("when it is deleted", 503, 200, "14:02:00")

	_, body := get(t, p.metrics.pages(), "/metrics")
	for _, want := range []string{`kubeproxy_proxy_healthz_total{code="503"} 5`, `kubeproxy_proxy_livez_total{code="200"} 7`} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, regexp.MustCompile("(?m)^kubeproxy_proxy.*$").FindAllString(body, -1))
		}
	}
}

func TestMetrics(t *testing.T) {
	p := newPages(t)
	now := time.Unix(1900000000, 0)
	p.metrics.synced(2*time.Millisecond, true, now, nil)
	p.metrics.synced(time.Second, false, now, nil)
	p.metrics.synced(time.Second, false, now.Add(time.Hour), io.ErrUnexpectedEOF)
	_, body := get(t, p.metrics.pages(), "/metrics")
	for _, want := range []string{
		`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2`,
		`kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.002`,
		`kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
		`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.9e+09`,
		`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, regexp.MustCompile("(?m)^kubeproxy_sync.*$").FindAllString(body, -1))
		}
	}
	for path, want := range map[string]string{"/healthz": "ok", "/proxyMode": "nftables"} {
		if code, body := get(t, p.metrics.pages(), path); code != 200 || body != want {
			t.Errorf("%s answers %d %q", path, code, body)
		}
	}
}

// TestHealthCheckOfAService: what kube-proxy answers, and unwell when the proxy is.
func TestHealthCheckOfAService(t *testing.T) {
	p := newPages(t)
	check := &healthCheck{progress: p.progress, local: 2, name: types.NamespacedName{Namespace: "default", Name: "web"}}
	const well = `{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}` + "\n"
	if code, body := get(t, check, "/"); code != 200 || body != well {
		t.Errorf("with endpoints it answers %d %s", code, body)
	}
	p.progress.news()
	p.clock.Step(late)
	if code, body := get(t, check, "/"); code != 503 || body != strings.Replace(well, "true", "false", 1) {
		t.Errorf("with late news it answers %d %s", code, body)
	}
	p.progress.take()
	p.progress.done()
	checks := newHealthChecks(p.progress)
	defer checks.close()
	checks.update(context.Background(), []changes.Service{{Name: check.name}})
	if len(checks.servers) != 0 {
		t.Error("a service without the port has a check")
	}
	// Who only serves until its end is no reason to send anybody here.
	served := &healthCheck{progress: p.progress, port: 30999, name: check.name, server: &http.Server{ReadHeaderTimeout: time.Second}}
	checks.servers[check.name] = served
	local := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.2:8080"), netip.MustParseAddrPort("10.244.1.3:8080")}
	for _, c := range []struct {
		ends        bool
		local, code int
	}{{false, 2, 200}, {true, 0, 503}} {
		checks.update(context.Background(), []changes.Service{{Name: check.name, HealthCheckPort: served.port, Ports: []changes.Port{{Local: local, LocalEnds: c.ends}}}})
		if code, body := get(t, served, "/"); code != c.code || !strings.Contains(body, fmt.Sprintf(`"localEndpoints":%d,`, c.local)) {
			t.Errorf("with endpoints of which it is %t that they end it answers %d %s", c.ends, code, body)
		}
	}
}
