package catchup

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// shows is a cache. What it shows can be changed.
type shows struct {
	client.Reader
	sets     []appsv1.DaemonSet
	pods     []corev1.Pod
	rollouts []v1alpha1.DaemonSetRollout
}

func (s *shows) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *appsv1.DaemonSetList:
		l.Items = s.sets
	case *corev1.PodList:
		l.Items = s.pods
	case *v1alpha1.DaemonSetRolloutList:
		l.Items = s.rollouts
	}
	return nil
}

// api is what the API holds, by resource. It answers with one object a page.
type api struct {
	metadata.Interface
	at      string
	objects map[string][]metav1.ObjectMeta
}

// Resource implements metadata.Interface.
func (a *api) Resource(of schema.GroupVersionResource) metadata.Getter { return one{api: a, of: of} }

type one struct {
	metadata.ResourceInterface
	api *api
	of  schema.GroupVersionResource
}

// Namespace implements metadata.Getter.
func (o one) Namespace(string) metadata.ResourceInterface { return o }

func (o one) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	all, served := o.api.objects[o.of.Resource]
	if !served {
		return nil, apierrors.NewNotFound(o.of.GroupResource(), "")
	}
	out := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: o.api.at}}
	at, _ := strconv.Atoi(options.Continue)
	if at < len(all) {
		out.Items = []metav1.PartialObjectMetadata{{ObjectMeta: all[at]}}
	}
	if at+1 < len(all) {
		out.Continue = strconv.Itoa(at + 1)
	}
	return out, nil
}

func (o one) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	for _, is := range o.api.objects[o.of.Resource] {
		if is.Name == name {
			return &metav1.PartialObjectMetadata{ObjectMeta: is}, nil
		}
	}
	return nil, apierrors.NewNotFound(o.of.GroupResource(), name)
}

// shown is of the DaemonSet's pods.
func shown(name, uid, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), ResourceVersion: version,
		Labels: map[string]string{"app": "agent"}}
}

// TestWhoBeginsWaitsForItsCache: until it has each change that the API had, and nothing that had gone by then.
func TestWhoBeginsWaitsForItsCache(t *testing.T) {
	for name, c := range map[string]struct {
		behind, after func(*shows)
		gone          string // from the API while it waits
		leads         bool
	}{
		"a pod is deleted":         {func(s *shows) { s.pods = append(s.pods, corev1.Pod{ObjectMeta: shown("c", "c", "3")}) }, func(s *shows) { s.pods = s.pods[:2] }, "", true},
		"a pod has changed":        {func(s *shows) { s.pods[1].ResourceVersion = "9" }, func(s *shows) { s.pods[1].ResourceVersion = "12" }, "", true},
		"a pod is made":            {func(s *shows) { s.pods = s.pods[:1] }, func(s *shows) { s.pods = append(s.pods, corev1.Pod{ObjectMeta: shown("b", "b", "10")}) }, "", true},
		"a pod was made, and went": {func(s *shows) { s.pods = s.pods[:1] }, func(*shows) {}, "b", true},
		"a pod is made again":      {func(s *shows) { s.pods[1].UID = "older" }, func(s *shows) { s.pods[1].UID = "b" }, "", true},
		"a rollout is paused":      {func(s *shows) { s.rollouts[0].ResourceVersion = "4" }, func(s *shows) { s.rollouts[0].ResourceVersion = "5" }, "", true},
		"a DaemonSet is written":   {func(s *shows) { s.sets[0].ResourceVersion = "1" }, func(s *shows) { s.sets[0].ResourceVersion = "100" }, "", false},
		"all is as it is":          {nil, nil, "", true},
		"a pod of others is stale": {func(s *shows) { s.pods[1].ResourceVersion = "9" }, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				holds := &api{at: "11", objects: map[string][]metav1.ObjectMeta{
					"daemonsets": {shown("agent", "d", "2")}, "daemonsetrollouts": {shown("agent", "r", "5")},
					"pods": {shown("a", "a", "8"), shown("b", "b", "10")},
				}}
				s := &shows{
					sets: []appsv1.DaemonSet{{ObjectMeta: shown("agent", "d", "2"), Spec: appsv1.DaemonSetSpec{
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}}},
					pods:     []corev1.Pod{{ObjectMeta: shown("a", "a", "8")}, {ObjectMeta: shown("b", "b", "10")}},
					rollouts: []v1alpha1.DaemonSetRollout{{ObjectMeta: shown("agent", "r", "5")}},
				}
				if c.behind != nil {
					c.behind(s)
				}
				w := Waiter{API: holds, Cache: s, Leads: func(*appsv1.DaemonSet) bool { return c.leads }}
				done := make(chan bool, 1)
				go func() { done <- w.Await(t.Context()) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				if waits := len(done) == 0; waits != (c.after != nil) {
					t.Errorf("it waits: %v", waits)
				}
				if c.after == nil {
					return
				}
				c.after(s)
				if c.gone != "" {
					holds.objects["pods"] = slices.DeleteFunc(holds.objects["pods"], func(m metav1.ObjectMeta) bool { return m.Name == c.gone })
				}
				time.Sleep(2 * lookEvery)
				synctest.Wait()
				if len(done) == 0 || !<-done {
					t.Fatal("it goes on waiting")
				}
			})
		})
	}
}
