package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/node/usage"
	"github.com/everynode/everynode/internal/testenv"
)

// scraper is a program that reads a node's metrics with the token of its service account.
type scraper struct {
	base, token string
	client      *http.Client
}

// newScraper makes a service account that may do this with the subresources of nodes.
func newScraper(t *testing.T, env *testenv.Env, name string, port int32, subresources ...string) *scraper {
	t.Helper()
	ctx := t.Context()
	_, err := env.Client.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	if len(subresources) > 0 {
		rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}}
		for _, s := range subresources {
			rule.Resources = append(rule.Resources, "nodes/"+s)
		}
		_, err = env.Client.RbacV1().ClusterRoles().Create(ctx,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
				Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		podstest.Must(t, err)
		_, err = env.Client.RbacV1().ClusterRoleBindings().Create(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}}, metav1.CreateOptions{})
		podstest.Must(t, err)
	}
	token, err := env.Client.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	podstest.Must(t, err)
	// As such programs are set up for a kubelet: its certificate is of no authority that they know.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	t.Cleanup(transport.CloseIdleConnections)
	return &scraper{base: fmt.Sprintf("https://127.0.0.1:%d", port), token: token.Status.Token,
		client: &http.Client{Transport: transport}}
}

func (s *scraper) get(ctx context.Context, path string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), errors.Join(err, response.Body.Close())
}

// find returns the value of the series that has all the labels, in the text of metrics.
func find(text, name string, labels ...string) (float64, bool) {
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 1<<20)
next:
	for scanner.Scan() {
		line := scanner.Text()
		series, values, ok := strings.Cut(line, "} ")
		if !ok {
			series, values, ok = strings.Cut(line, " ")
		}
		if had, _, _ := strings.Cut(series, "{"); !ok || had != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series+",", l+",") && !strings.Contains(series, "{"+l+",") {
				continue next
			}
		}
		first, _, _ := strings.Cut(values, " ")
		value, err := strconv.ParseFloat(first, 64)
		return value, err == nil
	}
	return 0, false
}

// TestScraped runs a whole agent, a pod, and what monitors them as it monitors a kubelet.
func TestScraped(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	port := freePort(t)
	startAgent(t, m, env, joinToken(t, env), func(c *config.Config) {
		c.Port, c.SystemReserved = port,
			map[string]string{"memory": "64Mi"}
	})
	monitor, nobody := newScraper(t, env, "monitor", port, "metrics", "stats"), newScraper(t, env, "nobody", port)
	pod := podstest.Pod("p", "sleep")
	pod.UID, pod.Spec.HostNetwork = "", false
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "say", "ready"}}}}
	env.Eventually("the pod is there", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().Pods("default").Create(ctx, pod.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	env.Eventually("the pod is ready", func(ctx context.Context) error {
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !podstest.IsReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		return err
	})

	code, body, err := nobody.get(t.Context(), "/metrics")
	if want := "Forbidden (user=system:serviceaccount:default:nobody, verb=get, resource=nodes, subresource(s)=[metrics])\n"; err != nil || code != http.StatusForbidden || body != want {
		t.Errorf("who may not is answered with %d %s%v, want 403 %s", code, body, err, want)
	}
	if code, _, err := monitor.get(t.Context(), "/pods"); err != nil || code != http.StatusForbidden {
		t.Errorf("the pods are answered with %d, %v, want 403: the account may read metrics only", code, err)
	}
	nobody.token = "none"
	if code, body, err := nobody.get(t.Context(), "/metrics"); err != nil || code != http.StatusUnauthorized ||
		body != "Unauthorized\n" {
		t.Errorf("a token that is none is answered with %d %s, %v", code, body, err)
	}
	container := []string{`container="main"`, `namespace="default"`, `pod="p"`}
	for path, wanted := range map[string][]struct {
		name   string
		labels []string
		least  float64
	}{
		"/metrics": {{"kubelet_node_name", []string{`node="n1"`}, 1}, {"kubelet_running_pods", nil, 1},
			{"kubelet_running_containers", []string{`container_state="running"`}, 1}, {"process_resident_memory_bytes", nil,
				1 << 20}, {"kubelet_pleg_relist_duration_seconds_count", nil, 1}},
		"/metrics/probes": {{"prober_probe_total", append([]string{`probe_type="Readiness"`, `result="successful"`},
			container...), 1}},
		"/metrics/resource": {{"node_cpu_usage_seconds_total", nil, 1}, {"node_memory_working_set_bytes", nil, 1 << 20},
			{"container_cpu_usage_seconds_total", container, 1e-6}, {"container_memory_working_set_bytes", container, 1 << 12},
			{"container_start_time_seconds", container, 1e9}, {"pod_cpu_usage_seconds_total", container[1:], 1e-6},
			{"pod_memory_working_set_bytes", container[1:], 1 << 12}, {"resource_scrape_error", nil, 0}},
		"/metrics/cadvisor": {{"container_cpu_usage_seconds_total",
			append([]string{`cpu="total"`, `image="` + podstest.BoxImage + `"`}, container...), 1e-6},
			{"container_memory_working_set_bytes", container, 1 << 12}, {"container_memory_rss", container, 1},
			{"container_spec_memory_limit_bytes", container, 64 << 20}, {"container_threads", container, 1},
			{"container_network_receive_bytes_total", []string{`container=""`, `interface="eth0"`, `namespace="default"`,
				`pod="p"`}, 0},
			{"container_cpu_usage_seconds_total", []string{`id="/"`}, 1}, {"container_fs_usage_bytes", container, 0},
			{"machine_cpu_cores", nil, 1}, {"machine_memory_bytes", nil, 1 << 20}, {"container_scrape_error", nil, 0}},
	} {
		env.Eventually(path+" tells all", func(ctx context.Context) error {
			code, body, err := monitor.get(ctx, path)
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("%d %s %w", code, body, err)
			}
			for _, w := range wanted {
				if value, ok := find(body, w.name, w.labels...); !ok || value < w.least {
					return fmt.Errorf("%s%v is %v (there: %t), want at least %v in\n%s", w.name, w.labels, value, ok, w.least,
						tailOf(body, 3000))
				}
			}
			if value, ok := find(body, "container_scrape_error"); ok && value != 0 {
				return errors.New("something could not be measured")
			}
			return nil
		})
	}
	env.Eventually("the summary tells all", func(ctx context.Context) error {
		code, body, err := monitor.get(ctx, "/stats/summary")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %s %w", code, body, err)
		}
		var got usage.Summary
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			return err
		}
		if n := got.Node; n.FS == nil || n.FS.CapacityBytes == nil || *n.FS.CapacityBytes == 0 || n.Runtime == nil ||
			n.Rlimit == nil ||
			n.Rlimit.CurProc == 0 || n.Memory == nil || n.Memory.AvailableBytes == nil {
			return fmt.Errorf("of the node it tells %+v", n)
		}
		if len(got.Pods) != 1 {
			return fmt.Errorf("%d pods", len(got.Pods))
		}
		p := got.Pods[0]
		if p.Network == nil || p.Network.Name != "eth0" || p.CPU == nil || p.CPU.UsageCoreNanoSeconds == 0 ||
			p.Memory == nil ||
			p.Memory.WorkingSetBytes == 0 || p.EphemeralStorage == nil || p.ProcessStats == nil || p.ProcessStats.Count < 2 ||
			len(p.Containers) != 1 {
			return fmt.Errorf("of the pod it tells %s", body)
		}
		if c := p.Containers[0]; c.StartTime == nil || c.Memory == nil || *c.Memory.RSSBytes == 0 ||
			c.Memory.AvailableBytes == nil || c.Rootfs == nil || c.Logs == nil {
			return fmt.Errorf("of the container it tells %s", body)
		}
		return nil
	})
	if code, body, err := monitor.get(t.Context(), "/stats/summary?only_cpu_and_memory=true"); err != nil ||
		code != http.StatusOK || strings.Contains(body, "rootfs") {
		t.Errorf("briefly: %d %s, %v", code, body, err)
	}
	bounded(t, m, env)
	prepulled(t, env)
	configured(t, env)
}

// bounded looks whether all pods together have what the node has less what is reserved.
func bounded(t *testing.T, m *machine, env *testenv.Env) {
	t.Helper()
	node, err := env.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	podstest.Must(t, err)
	want := node.Status.Capacity.Memory().Value() - 64<<20
	podstest.Eventually(t, "the bound of all pods", func() bool {
		for _, file := range []string{"/sys/fs/cgroup/memory" + m.cgroupRoot + "/kubepods/memory.limit_in_bytes",
			"/sys/fs/cgroup" + m.cgroupRoot + "/kubepods/memory.max"} {
			if text, err := os.ReadFile(file); err == nil {
				got, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				return err == nil && got > want-1<<16 && got <= want // The kernel counts in pages.
			}
		}
		return false
	})
}

// configured starts nothing: what the node says of its configuration is a file that it would take.
func configured(t *testing.T, env *testenv.Env) {
	t.Helper()
	text, err := env.Client.CoreV1().RESTClient().Get().Resource("nodes").Name("n1").SubResource("proxy").Suffix("configz").DoRaw(t.Context())
	podstest.Must(t, err)
	var page struct {
		Kubeletconfig json.RawMessage `json:"kubeletconfig"`
	}
	podstest.Must(t, json.Unmarshal(text, &page))
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	podstest.Must(t, os.WriteFile(path, page.Kubeletconfig, 0o600))
	var c config.Config
	err = c.LoadFile(path, func(string) bool { return false })
	if err != nil || c.MaxPods != 110 || c.EvictionHard != "none" {
		t.Errorf("%v, %+v of %s", err, c, text)
	}
}
