package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/testenv"
)

// TestControlPlane stores changed objects in a whole control plane with a few
// simulated nodes. Whatever they are, an ordinary DaemonSet beside them is rolled
// out, updated and removed as ever, their namespace can be emptied, and no control
// loop panics.
//
// It is no test for Go's fuzzer, which takes an input of more than ten seconds for
// one that hangs, and learns nothing from what all the loops happen to do meanwhile.
// With -soak it goes on for as long as that says.
func TestControlPlane(t *testing.T) {
	const enough = 8
	p, began, round := newPlane(t), time.Now(), uint64(0)
	for ; round < enough || time.Since(began) < *soak; round++ {
		if !t.Run(fmt.Sprint(round), func(t *testing.T) { p.endure(t, round) }) {
			break
		}
	}
	t.Logf("soak: %d rounds, %d objects stored", round, p.objects)
}

// endure disturbs the control plane once, as the number of the round says.
func (p *plane) endure(t *testing.T, round uint64) {
	random, data := rand.New(rand.NewPCG(*chance, round)), []byte{11}
	for range 300 {
		data = append(data, byte(random.Uint32()))
	}
	panics.take()
	d := p.disturb(t, &mutator{source: &source{data: data}, lore: knowledge()})
	p.roll(t, d)
	d.clear()
	if found := panics.take(); len(found) > 0 {
		t.Fatalf("panics: %s\nstored:\n%s", strings.Join(found, "; "), strings.Join(d.stored, "\n"))
	}
	p.objects += len(d.stored)
}

// disturbing are the resources that some control loop looks at.
var disturbing = []string{
	"daemonsets", "pods", "nodes", "controllerrevisions", "replicasets", "statefulsets", "deployments", "jobs", "cronjobs", "services", "endpoints", "endpointslices", "poddisruptionbudgets", "leases",
	"namespaces", "serviceaccounts", "priorityclasses", "certificatesigningrequests", "clusterroles", "clusterrolebindings", "rolebindings", "secrets", "configmaps",
}

// canaries is the namespace of the ordinary DaemonSets.
const canaries = "canaries"

// plane is a control plane with the node of the ordinary DaemonSets.
type plane struct {
	env  *testenv.Env
	api  *api
	node string
	// rounds and objects count what it has seen.
	rounds, objects int
}

func newPlane(t *testing.T) *plane {
	p := &plane{env: testenv.Start(t, testenv.SimulatedNodes(3))}
	transport, err := restclient.TransportFor(p.env.Config)
	if err != nil {
		t.Fatal(err)
	}
	p.api = &api{RoundTripper: transport, host: strings.TrimPrefix(p.env.Config.Host, "https://")}
	p.api.kinds, err = p.api.discover()
	if err != nil {
		t.Fatal(err)
	}
	post(t, p.api, "/api/v1/namespaces", `{"metadata":{"name":"`+canaries+`"}}`)
	p.env.Eventually("the simulated nodes are there", func(ctx context.Context) error {
		nodes, err := p.env.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) < 3 {
			err = fmt.Errorf("there are %d", len(nodes.Items))
		}
		if err == nil {
			p.node = nodes.Items[0].Name
		}
		return err
	})
	return p
}

// eventually is the environment's, for the test that runs.
func (p *plane) eventually(t *testing.T, d *disturbance, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := wait(ctx, check); err != nil {
		t.Fatalf("%s: %v\nstored:\n%s", what, err, strings.Join(d.stored, "\n"))
	}
}

// roll takes an ordinary DaemonSet through its life.
func (p *plane) roll(t *testing.T, d *disturbance) {
	t.Helper()
	sets, name := p.env.Client.AppsV1().DaemonSets(canaries), d.namespace
	labels := map[string]string{"canary": name}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: p.node}, PriorityClassName: "system-node-critical",
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "main", Image: "demo:v1"}},
		}},
	}}
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create an ordinary DaemonSet: %v\nstored:\n%s", err, strings.Join(d.stored, "\n"))
	}
	running := func(generation int64) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := sets.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := got.Status; s.ObservedGeneration != generation || s.DesiredNumberScheduled != 1 || s.UpdatedNumberScheduled != 1 || s.NumberAvailable != 1 {
				return fmt.Errorf("its status is %+v", s)
			}
			return nil
		}
	}
	p.eventually(t, d, "an ordinary DaemonSet runs", running(1))
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`)
	if _, err := sets.Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("update an ordinary DaemonSet: %v", err)
	}
	p.eventually(t, d, "an ordinary DaemonSet is updated", running(2))
	options := metav1.ListOptions{LabelSelector: "canary=" + name}
	revisions, err := p.env.Client.AppsV1().ControllerRevisions(canaries).List(t.Context(), options)
	if err != nil || len(revisions.Items) != 2 {
		t.Fatalf("after one update there are %d revisions, want 2: %v", len(revisions.Items), err)
	}
	if err := sets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete an ordinary DaemonSet: %v", err)
	}
	p.eventually(t, d, "what an ordinary DaemonSet had is collected", func(ctx context.Context) error {
		pods, err := p.env.Client.CoreV1().Pods(canaries).List(ctx, options)
		if err != nil {
			return err
		}
		revisions, err := p.env.Client.AppsV1().ControllerRevisions(canaries).List(ctx, options)
		if err == nil && len(pods.Items)+len(revisions.Items) > 0 {
			err = fmt.Errorf("%d pods and %d revisions are left", len(pods.Items), len(revisions.Items))
		}
		return err
	})
}

// disturbance is what one input stores.
type disturbance struct {
	*mutator
	t         *testing.T
	plane     *plane
	namespace string
	// stored are the objects, paths where they are.
	stored []string
	paths  []string
}

func (p *plane) disturb(t *testing.T, m *mutator) *disturbance {
	t.Helper()
	p.rounds++
	d := &disturbance{mutator: m, t: t, plane: p, namespace: fmt.Sprintf("h%d", p.rounds)}
	post(t, p.api, "/api/v1/namespaces", `{"metadata":{"name":"`+d.namespace+`"}}`)
	p.eventually(t, d, "a new namespace has its service account", func(ctx context.Context) error {
		_, err := p.env.Client.CoreV1().ServiceAccounts(d.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for i := range 1 + m.below(12) {
		resource := pick(m.source, disturbing)
		at := slices.IndexFunc(p.api.kinds, func(k kind) bool { return k.resource == resource })
		d.store(&p.api.kinds[at], i)
	}
	return d
}

// store makes a changed object, and perhaps changes its status too.
func (d *disturbance) store(k *kind, number int) {
	d.t.Helper()
	obj := d.place(k, d.change(clone(pick(d.source, k.seeds)), goType(k.GroupVersionKind), pick(d.source, []int{1, 0, 2, 3, 5})), number)
	got := d.send(request{method: http.MethodPost, path: k.path(d.namespace, ""), contentType: jsonType, accept: jsonType, body: encode(obj)})
	if got.code != http.StatusCreated {
		return
	}
	made, err := parse(got.body)
	if err != nil {
		d.t.Fatal(err)
	}
	path := k.path(d.namespace, textAt(made, "metadata", "name"))
	d.stored, d.paths = append(d.stored, string(got.body)), append(d.paths, path)
	if _, ok := k.subresources["status"]; !ok || !d.oneIn(2) {
		return
	}
	delete(made.(map[string]any)["metadata"].(map[string]any), "resourceVersion")
	made = d.place(k, d.change(made, goType(k.GroupVersionKind), 1+d.below(3)), number)
	if got := d.send(request{method: http.MethodPut, path: path + "/status", contentType: jsonType, accept: jsonType, body: encode(made)}); got.code == http.StatusOK {
		d.stored = append(d.stored, string(got.body))
	}
}

// place gives the object the name and the namespace by which it is found again.
func (d *disturbance) place(k *kind, obj any, number int) any {
	m, ok := at(obj, "metadata").(map[string]any)
	if !ok {
		return obj
	}
	m["name"] = fmt.Sprintf("%s-%d", d.namespace, number)
	// Who asks for a million pods gets them; that says nothing of the loops.
	if spec, ok := at(obj, "spec").(map[string]any); ok {
		if n, ok := spec["replicas"].(json.Number); ok && len(n) > 1 {
			spec["replicas"] = json.Number("9")
		}
	}
	if k.namespaced {
		m["namespace"] = d.namespace
	}
	return obj
}

func (d *disturbance) send(r request) reply {
	d.t.Helper()
	got := d.plane.api.send(context.Background(), r)
	got.panicked = nil // judged at the end, as it may be a control loop's
	if err := got.wrong(); err != nil {
		d.t.Fatalf("%v\n%v\nstored:\n%s", r, err, strings.Join(d.stored, "\n"))
	}
	return got
}

var errLeft = errors.New("it is still there")

// clear removes everything, by force where something holds it.
func (d *disturbance) clear() {
	d.t.Helper()
	d.paths = append(d.paths, "/api/v1/namespaces/"+d.namespace)
	for _, path := range d.paths {
		d.send(request{method: http.MethodDelete, path: path, query: "propagationPolicy=Background", accept: jsonType})
	}
	for _, path := range d.paths {
		d.plane.eventually(d.t, d, path+" can be deleted", func(ctx context.Context) error {
			d.release(ctx, path)
			got := d.send(request{method: http.MethodGet, path: path, accept: jsonType})
			if got.code == http.StatusNotFound {
				return nil
			}
			return fmt.Errorf("%w: %s", errLeft, got.body)
		})
	}
}

// release takes away what may hold an object, and the pods in the namespace.
func (d *disturbance) release(ctx context.Context, path string) {
	merge := func(path string) {
		d.send(request{method: http.MethodPatch, path: path, contentType: "application/merge-patch+json", accept: jsonType, body: []byte(`{"metadata":{"finalizers":null}}`)})
	}
	merge(path)
	client := d.plane.env.Client.CoreV1()
	if name, ok := strings.CutPrefix(path, "/api/v1/namespaces/"); ok && !strings.Contains(name, "/") && name != d.namespace {
		if ns, err := client.Namespaces().Get(ctx, name, metav1.GetOptions{}); err == nil {
			ns.Spec.Finalizers = nil
			_, _ = client.Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
		}
	}
	pods, err := client.Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range pods.Items {
		merge("/api/v1/namespaces/" + d.namespace + "/pods/" + p.Name)
		if err := client.Pods(d.namespace).Delete(ctx, p.Name, *metav1.NewDeleteOptions(0)); err != nil && !apierrors.IsNotFound(err) {
			d.t.Fatalf("delete the pod %s by force: %v", p.Name, err)
		}
	}
}
