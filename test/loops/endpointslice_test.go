package loops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/testenv"
)

var app = map[string]string{"app": "web"}

func aService(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: selector, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
}

// seen writes where a Service leads by its slices: ready addresses, and in brackets others.
func seen(ctx context.Context, e *testenv.Env, service string) (string, error) {
	list, err := e.Client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return "", err
	}
	var out []string
	for _, s := range list.Items {
		for _, p := range s.Endpoints {
			who := p.Addresses[0]
			if p.TargetRef != nil {
				who = *p.NodeName
			}
			if !*p.Conditions.Ready {
				who = "(" + who + ")"
			}
			out = append(out, fmt.Sprintf("%s:%d", who, *s.Ports[0].Port))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

// old writes the same by the Endpoints.
func old(ctx context.Context, e *testenv.Env, service string) (string, error) {
	object, err := e.Client.CoreV1().Endpoints("default").Get(ctx, service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none", nil
	}
	if err != nil {
		return "", err
	}
	var out []string
	for _, s := range object.Subsets {
		for _, a := range s.Addresses {
			who := a.IP
			if a.NodeName != nil {
				who = *a.NodeName
			}
			out = append(out, fmt.Sprintf("%s:%d", who, s.Ports[0].Port))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

func expect(t *testing.T, e *testenv.Env, when, service, wantSlices, wantEndpoints string) {
	t.Helper()
	e.Eventually(when, func(ctx context.Context) error {
		inSlices, err := seen(ctx, e, service)
		if err != nil {
			return err
		}
		inEndpoints, err := old(ctx, e, service)
		if err != nil {
			return err
		}
		if inSlices != wantSlices || inEndpoints != wantEndpoints {
			return fmt.Errorf("slices %q and endpoints %q, want %q and %q", inSlices, inEndpoints, wantSlices, wantEndpoints)
		}
		return nil
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// TestFollowsPods: a Service leads to the daemons that are ready and match.
func TestFollowsPods(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(2))
	service := must[*corev1.Service](t)
	service(e.Client.CoreV1().Services("default").Create(t.Context(), aService("web", app), metav1.CreateOptions{}))
	expect(t, e, "a service without pods", "web", "", "")
	must[*appsv1.DaemonSet](t)(e.Client.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}},
		}},
	}, metav1.CreateOptions{}))
	nodes := must[*corev1.NodeList](t)(e.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	both := nodes.Items[0].Name + ":8080 " + nodes.Items[1].Name + ":8080"
	expect(t, e, "a service of daemons", "web", both, both)

	patch := func(port string) {
		service(e.Client.CoreV1().Services("default").Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(port), metav1.PatchOptions{}))
	}
	patch(`{"spec":{"selector":{"active":"yes"}}}`)
	expect(t, e, "a selector that fits nothing", "web", "", "")
	pods := must[*corev1.PodList](t)(e.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}))
	label := func(pod corev1.Pod, value string) {
		must[*corev1.Pod](t)(e.Client.CoreV1().Pods("default").Patch(t.Context(), pod.Name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"active":`+value+`}}}`), metav1.PatchOptions{}))
	}
	label(pods.Items[0], `"yes"`)
	first := pods.Items[0].Spec.NodeName + ":8080"
	expect(t, e, "a pod got the label", "web", first, first)
	label(pods.Items[0], "null")
	expect(t, e, "it lost the label", "web", "", "")

	if err := e.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the slices and endpoints go with the service", func(ctx context.Context) error {
		list, err := e.Client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil {
			return err
		}
		left, err := old(ctx, e, "web")
		if err == nil && (len(list.Items) != 0 || left != "none") {
			err = fmt.Errorf("%d slices and endpoints %q are left", len(list.Items), left)
		}
		return err
	})
}

// TestMirrorsWhatAPersonWrote: endpoints without a selector stay as they are, and the
// slices say the same.
func TestMirrorsWhatAPersonWrote(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	written := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 5432}}}}}
	endpoints, service := must[*corev1.Endpoints](t), must[*corev1.Service](t)
	// The endpoints may come before the service, as in one manifest.
	written = endpoints(e.Client.CoreV1().Endpoints("default").Create(t.Context(), written, metav1.CreateOptions{}))
	service(e.Client.CoreV1().Services("default").Create(t.Context(), aService("db", nil), metav1.CreateOptions{}))
	expect(t, e, "written by hand", "db", "192.0.2.1:5432", "192.0.2.1:5432")
	written.Subsets[0].Addresses[0].IP = "192.0.2.2"
	endpoints(e.Client.CoreV1().Endpoints("default").Update(t.Context(), written, metav1.UpdateOptions{}))
	expect(t, e, "changed by hand", "db", "192.0.2.2:5432", "192.0.2.2:5432")

	service(e.Client.CoreV1().Services("default").Patch(t.Context(), "db", types.StrategicMergePatchType, []byte(`{"spec":{"selector":{"app":"db"}}}`), metav1.PatchOptions{}))
	expect(t, e, "a selector is added", "db", "", "")
	service(e.Client.CoreV1().Services("default").Patch(t.Context(), "db", types.StrategicMergePatchType, []byte(`{"spec":{"selector":null}}`), metav1.PatchOptions{}))
	e.Eventually("written by hand again", func(ctx context.Context) error {
		// Until the controller has seen that the selector is gone, it may win.
		current, err := e.Client.CoreV1().Endpoints("default").Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(current.Subsets) == 1 && current.Subsets[0].Addresses[0].IP == "192.0.2.3" {
			return nil
		}
		current.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.3"}}, Ports: []corev1.EndpointPort{{Port: 5432}}}}
		if _, err := e.Client.CoreV1().Endpoints("default").Update(ctx, current, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return errors.New("written, to be looked at again")
	})
	if err := e.Client.CoreV1().Services("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, e, "the service is gone", "db", "", "none")
}
