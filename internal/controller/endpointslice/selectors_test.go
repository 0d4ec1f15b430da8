package endpointslice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// noted is a queue that notes which Services are to be looked after.
type noted struct {
	queue
	names []string
}

func (n *noted) Add(r reconcile.Request)                       { n.names = append(n.names, r.String()) }
func (n *noted) AddAfter(r reconcile.Request, _ time.Duration) { n.Add(r) }

// The Services that select a pod, or did before it changed, are looked after, and no others, whatever became of their
// selectors meanwhile.
func TestServicesOfAPod(t *testing.T) {
	s, q := newSelectors(), &noted{}
	services, pods := s.serviceHandler(), s.podHandler()
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(q.names)
		if !slices.Equal(q.names, want) {
			t.Errorf("%s: %q are looked after, want %q", what, q.names, want)
		}
		q.names = nil
	}
	service := func(name, selector string) *corev1.Service {
		out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		out.Spec.Selector = set(selector)
		return out
	}
	version := 0
	pod := func(labels string) *corev1.Pod {
		version++
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", Labels: set(labels), ResourceVersion: fmt.Sprint(version),
		}}
	}
	for _, object := range []*corev1.Service{service("web", "app=web"), service("front", "app=web,tier=front"),
		service("all", ""), service("byhand", "-")} {
		services.Create(t.Context(), event.CreateEvent{Object: object}, q)
	}
	elsewhere := service("web", "app=web")
	elsewhere.Namespace = "other"
	services.Create(t.Context(), event.CreateEvent{Object: elsewhere}, q)
	expect("services that come", "ns/all", "ns/byhand", "ns/front", "ns/web", "other/web")

	pods.Create(t.Context(), event.CreateEvent{Object: pod("app=web")}, q)
	expect("a pod that comes", "ns/all", "ns/web")
	pods.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("app=web"), ObjectNew: pod("tier=front,app=web")}, q)
	expect("a pod that gets a label", "ns/all", "ns/front", "ns/web")
	pods.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("tier=front,app=web"), ObjectNew: pod("app=db")}, q)
	expect("a pod that gets another label", "ns/all", "ns/front", "ns/web")
	pods.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("app=web"), ObjectNew: pod("app=web")}, q)
	expect("a pod in which nothing changes")

	for _, to := range []string{"app=db", "-", "app=web"} {
		services.Update(t.Context(), event.UpdateEvent{ObjectOld: service("web", ""), ObjectNew: service("web", to)}, q)
		expect("a service that changes", "ns/web")
		pods.Delete(t.Context(), event.DeleteEvent{Object: pod("app=db")}, q)
		want := []string{"ns/all"}
		if to == "app=db" {
			want = append(want, "ns/web")
		}
		expect("a pod that goes, with the selector "+to, want...)
	}
	for _, name := range []string{"web", "front", "all", "byhand"} {
		services.Delete(t.Context(), event.DeleteEvent{Object: service(name, "")}, q)
	}
	expect("services that go", "ns/all", "ns/byhand", "ns/front", "ns/web")
	pods.Delete(t.Context(), event.DeleteEvent{Object: pod("app=web")}, q)
	expect("a pod that goes after its services")
	if len(s.of) != 1 {
		t.Errorf("selectors of %d namespaces are kept, want those of one", len(s.of))
	}
}

// set is what a text such as a=b,c=d stands for; - is none.
func set(text string) map[string]string {
	if text == "-" {
		return nil
	}
	out := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			out[key] = value
		}
	}
	return out
}

// BenchmarkPodEvent is an event of a pod in a namespace with Services.
func BenchmarkPodEvent(b *testing.B) {
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprint(n, " services"), func(b *testing.B) {
			s, q := newSelectors(), &noted{}
			for i := range n {
				name := fmt.Sprint("s", i)
				s.set(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
					Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}}})
			}
			e := event.CreateEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
				Labels: map[string]string{"app": "s0", "a": "1", "b": "2", "c": "3"}}}}
			handler := s.podHandler()
			b.ReportAllocs()
			for b.Loop() {
				q.names = q.names[:0]
				handler.Create(b.Context(), e, q)
			}
		})
	}
}
