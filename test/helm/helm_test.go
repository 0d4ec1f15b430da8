// Package helm installs charts with the real Helm. The charts are written in the
// structure of those that people install: definitions of kinds, hooks, webhooks, RBAC,
// charts within charts, tests. Helm is a program that hack/helm.sh builds.
package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// versions of Helm that are tested, with the flag that undoes a change that fails.
var versions = map[string]struct{ undoFlag string }{
	"v3": {"--atomic"},
	"v4": {"--rollback-on-failure"},
}

// release is one installation of a chart.
type release struct {
	*cluster
	t                      *testing.T
	program                string
	home                   string
	chart, name, namespace string
	version                string
	dynamic                dynamic.Interface
}

// patience is how long Helm waits; only a failure takes it.
const patience = "2m"

// try runs Helm on the release's cluster.
func (r *release) try(args ...string) (out string, err error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig, "HELM_NAMESPACE="+r.namespace,
		"HOME="+r.home, "XDG_CACHE_HOME="+r.home, "XDG_CONFIG_HOME="+r.home, "XDG_DATA_HOME="+r.home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// helm runs Helm and must succeed.
func (r *release) helm(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// refused runs Helm, which must fail with that text.
func (r *release) refused(want string, args ...string) {
	r.t.Helper()
	out, err := r.try(args...)
	if err == nil || !strings.Contains(err.Error(), want) {
		r.t.Fatalf("helm %s: got %v, want a failure with %q; it printed\n%s", strings.Join(args, " "), err, want, out)
	}
}

func (r *release) install(args ...string) string {
	r.t.Helper()
	return r.helm(append([]string{"install", r.name, r.chart, "--wait", "--timeout", patience}, args...)...)
}

func (r *release) upgrade(args ...string) string {
	r.t.Helper()
	return r.helm(append([]string{"upgrade", r.name, r.chart, "--wait", "--timeout", patience}, args...)...)
}

// revisions are the release's revisions with what became of them.
func (r *release) revisions() (all []string) {
	r.t.Helper()
	var list []struct {
		Revision int    `json:"revision"`
		Status   string `json:"status"`
	}
	if err := json.Unmarshal([]byte(r.helm("history", r.name, "-o", "json")), &list); err != nil {
		r.t.Fatal(err)
	}
	for _, l := range list {
		all = append(all, fmt.Sprintf("%d %s", l.Revision, l.Status))
	}
	return all
}

// hasRevisions fails unless the release's revisions are these.
func (r *release) hasRevisions(want ...string) {
	r.t.Helper()
	if got := r.revisions(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		r.t.Errorf("the revisions are %q, want %q", got, want)
	}
}

// image fails unless all pods of a DaemonSet are ready with that image.
func (r *release) image(daemon, want string) {
	r.t.Helper()
	d, err := r.Client.AppsV1().DaemonSets(r.namespace).Get(r.t.Context(), daemon, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != want {
		r.t.Errorf("the DaemonSet has the image %s, want %s", got, want)
	}
	if s := d.Status; s.NumberUnavailable != 0 || s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.DesiredNumberScheduled == 0 {
		r.t.Errorf("Helm waited, and the DaemonSet is not rolled out: %+v", s)
	}
}

// job fails unless a Job of that name is there, or is not, as wanted.
func (r *release) job(name string, want bool) {
	r.t.Helper()
	_, err := r.Client.BatchV1().Jobs(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if there := err == nil; there != want || err != nil && !apierrors.IsNotFound(err) {
		r.t.Errorf("the Job %s is there: %v (%v), want %v", name, there, err, want)
	}
}

// gone waits until an object is not there any more.
func (r *release) gone(kind schema.GroupVersionResource, namespace, name string) {
	r.t.Helper()
	r.Eventually(kind.Resource+" "+name+" is gone", func(ctx context.Context) error {
		_, err := r.dynamic.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			return errors.New("it is there")
		}
		return err
	})
}

// tests are those of one chart each.
var tests = map[string]func(*release){
	"node-inventory": nodeInventory,
	"admission-gate": admissionGate,
	"device-stack":   deviceStack,
}

func TestCharts(t *testing.T) {
	on := start(t)
	for version := range versions {
		t.Run(version, func(t *testing.T) {
			program := Program(t, version)
			for chart, test := range tests {
				t.Run(chart, func(t *testing.T) {
					t.Parallel()
					test(newRelease(t, on, program, version, chart))
				})
			}
		})
	}
}

// Program is the path of that version of Helm.
func Program(t *testing.T, version string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/helm-" + version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("bin/helm-%s is not built; run: hack/helm.sh %[1]s", version)
	}
	return path
}

func newRelease(t *testing.T, on *cluster, program, version, chart string) *release {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("charts", chart))
	if err != nil {
		t.Fatal(err)
	}
	r := &release{cluster: on, t: t, program: program, home: t.TempDir(),
		chart: path, name: chart + "-" + version, namespace: chart + "-" + version, version: version}
	r.dynamic, err = dynamic.NewForConfig(on.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace, Labels: map[string]string{"gate.example.com/watched": "yes"}}}
	if _, err := on.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		// What a chart leaves behind goes with its namespace.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := on.Client.CoreV1().Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return r
}

var (
	crds        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	inventories = schema.GroupVersionResource{Group: "hardware.example.com", Version: "v1", Resource: "inventories"}
	daemonSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	roles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

// nodeInventory is a chart with a kind of its own, hooks at each point and a test.
func nodeInventory(r *release) {
	r.refused("interval", "install", r.name, r.chart, "--set", "interval=often")
	if out := r.helm("install", r.name, r.chart, "--dry-run=server"); !strings.Contains(out, "kind: Inventory") {
		r.t.Errorf("a dry run printed\n%s", out)
	}
	if out := r.install(); !strings.Contains(out, "looks at every machine each 30 s") {
		r.t.Errorf("installing said\n%s", out)
	}
	r.image(r.name, "everynode.io/demo:v1")
	r.job(r.name+"-prepare", true)
	r.job(r.name+"-announce", false) // it goes when it has succeeded
	r.every(30)
	if out := r.helm("test", r.name, "--timeout", patience); !strings.Contains(out, "Phase:          Succeeded") {
		r.t.Errorf("the chart's test said\n%s", out)
	}

	r.upgrade("--set", "image.tag=v2", "--set", "interval=60")
	r.image(r.name, "everynode.io/demo:v2")
	r.every(60)
	r.helm("rollback", r.name, "1", "--wait", "--timeout", patience)
	r.image(r.name, "everynode.io/demo:v1")
	r.every(30)
	r.hasRevisions("1 superseded", "2 superseded", "3 deployed")

	r.inventoryFails()

	if out := r.helm("list", "-o", "json"); !strings.Contains(out, `"chart":"node-inventory-1.2.0"`) {
		r.t.Errorf("the releases are %s", out)
	}
	r.helm("uninstall", r.name, "--wait", "--timeout", patience)
	r.gone(daemonSets, r.namespace, r.name)
	r.gone(roles, "", r.name)
	r.gone(inventories, "", r.name)
	if _, err := r.dynamic.Resource(crds).Get(r.t.Context(), "inventories.hardware.example.com", metav1.GetOptions{}); err != nil {
		r.t.Errorf("the definition went with the release: %v", err)
	}
	r.refused("not found", "status", r.name)
}

// inventoryFails tries changes that come to nothing.
func (r *release) inventoryFails() {
	r.t.Helper()
	// A hook that fails keeps everything as it was.
	r.refused("prepare", "upgrade", r.name, r.chart, "--set", "hooks.fault=crash,image.tag=v2", "--timeout", patience)
	r.image(r.name, "everynode.io/demo:v1")
	// An image that does not come is undone.
	r.refused("", "upgrade", r.name, r.chart, "--set", "image.tag=fail", versions[r.version].undoFlag, "--wait", "--timeout", "5s")
	r.image(r.name, "everynode.io/demo:v1")
	// The server says what is wrong with the object.
	r.refused("spec.every", "upgrade", r.name, r.chart, "--set-json", `labels={"x":"y"}`, "--set", "interval=0", "--skip-schema-validation")
	if all := r.revisions(); !strings.HasSuffix(all[4], "failed") || all[5] != "6 deployed" {
		r.t.Errorf("the revisions are %q, want the fifth failed and the sixth what was before", all)
	}
}

// every fails unless the object of the chart's own kind says so.
func (r *release) every(want int64) {
	r.t.Helper()
	o, err := r.dynamic.Resource(inventories).Get(r.t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := o.Object["spec"].(map[string]any)["every"]; got != want {
		r.t.Errorf("the inventory is made every %v s, want %d", got, want)
	}
}

// admissionGate is a chart with webhooks and a certificate that it makes.
func admissionGate(r *release) {
	calls := serveWebhooks(r.t)
	r.install("--set", "webhook.url="+calls.url, "--set", "webhook.caBundle="+calls.ca)
	certificate := r.secret()
	daemon := `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"%s","labels":{"owner":"%s"}},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"everynode.io/demo:v1"}]}}}}`
	apply := func(name, owner string) error {
		_, err := r.dynamic.Resource(daemonSets).Namespace(r.namespace).Patch(r.t.Context(), name, types.ApplyPatchType,
			fmt.Appendf(nil, daemon, name, owner), metav1.PatchOptions{FieldManager: "test"})
		return err
	}
	r.Eventually("the webhook refuses", func(context.Context) error {
		if err := apply("nobodys", "nobody"); err == nil || !strings.Contains(err.Error(), "whose is it") {
			return fmt.Errorf("got %v", err) //nolint:errorlint // It may be none.
		}
		return nil
	})
	if err := apply("ours", "us"); err != nil {
		r.t.Fatal(err)
	}
	d, err := r.Client.AppsV1().DaemonSets(r.namespace).Get(r.t.Context(), "ours", metav1.GetOptions{})
	if err != nil || d.Annotations["gate.example.com/seen"] != "yes" {
		r.t.Errorf("the webhook completed the DaemonSet to %v (%v)", d.Annotations, err)
	}

	r.upgrade("--reuse-values", "--set", "replicas=3")
	if r.secret() != certificate {
		r.t.Error("an upgrade replaced the certificate: lookup does not find what is there")
	}
	// Without the address the webhooks are the chart's pods, in which nothing runs here.
	r.upgrade("--set", "webhook.failurePolicy=Ignore", "--reset-values")
	if err := apply("nobodys", "nobody"); err != nil {
		r.t.Errorf("a webhook that is not there, and may be ignored, refuses: %v", err)
	}
	r.helm("uninstall", r.name, "--wait", "--timeout", patience)
	r.gone(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}, "", r.name)
}

// secret is the certificate that the chart made.
func (r *release) secret() string {
	r.t.Helper()
	s, err := r.Client.CoreV1().Secrets(r.namespace).Get(r.t.Context(), r.name+"-tls", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(s.Data["tls.crt"])
}

// deviceStack is a chart with another within, and many kinds.
func deviceStack(r *release) {
	ctx := r.t.Context()
	if _, err := r.Client.CoreV1().Nodes().Patch(ctx, "sim-0002", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"example.com/device":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.install()
	r.image(r.name+"-driver", "everynode.io/demo:v1")
	pods, err := r.Client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: "part=" + r.name + "-offer"})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != "sim-0002" {
		r.t.Errorf("the offer has the pods %v (%v), want one on sim-0002", pods.Items, err)
	}
	set, err := r.Client.AppsV1().StatefulSets(r.namespace).Get(ctx, r.name+"-monitor", metav1.GetOptions{})
	if err != nil || set.Status.ReadyReplicas != 2 {
		r.t.Errorf("Helm waited, and the StatefulSet is %+v (%v)", set.Status, err)
	}
	if _, err := r.Client.BatchV1().CronJobs(r.namespace).Get(ctx, r.name+"-sweep", metav1.GetOptions{}); err != nil {
		r.t.Error(err)
	}
	// The chart within goes by a switch.
	r.upgrade("--set", "monitor.enabled=false")
	r.gone(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, r.namespace, r.name+"-monitor")
	r.upgrade("--install", "--reset-values")
	r.hasRevisions("1 superseded", "2 superseded", "3 deployed")
	r.helm("uninstall", r.name, "--wait", "--timeout", patience)
	r.gone(schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}, "", r.name+"-devices")
	r.gone(daemonSets, r.namespace, r.name+"-driver")
	if _, err := r.Client.CoreV1().ConfigMaps(r.namespace).Get(ctx, r.name+"-kept", metav1.GetOptions{}); err != nil {
		r.t.Errorf("what the chart says is kept went: %v", err)
	}
}
