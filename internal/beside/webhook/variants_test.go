package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// TestAPodGetsItsNodesVariant: by the variants that its revision has, and none that somebody has put in their place.
// Where it cannot be had no pod is made.
func TestAPodGetsItsNodesVariant(t *testing.T) {
	all := []variant.Variant{
		{Name: "large", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "xl"}}, Priority: 1,
			Patch: json.RawMessage(`{"spec":{"hostPID":true}}`)},
		{Name: "by-size", Resources: map[string]v1alpha1.VariantResources{"agent": {
			Requests: map[corev1.ResourceName]string{"memory": "node.allocatable.memory * 0.1"}}}},
	}
	set, err := variant.NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Text()
	if err != nil {
		t.Fatal(err)
	}
	node := func(labels map[string]string, memory string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}}
		if memory != "" {
			n.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		}
		return n
	}
	const nodePath, revisionsPath = "/api/v1/nodes/node-1", "/apis/apps/v1/namespaces/default/controllerrevisions"
	for name, c := range map[string]struct {
		change func(a api, holds *appsv1.ControllerRevision)
		says   string // of the patch; with ! in front, of the refusal
	}{
		"a patch": {func(a api, _ *appsv1.ControllerRevision) {
			a[nodePath] = node(map[string]string{"size": "xl"}, "")
		}, `"hostPID":true`},
		"a formula": {func(a api, _ *appsv1.ControllerRevision) { a[nodePath] = node(nil, "10Gi") }, `"memory":"1Gi"`},
		"a formula that fails": {func(a api, _ *appsv1.ControllerRevision) { a[nodePath] = node(nil, "") },
			"!variant by-size: resources.agent.requests.memory"},
		"the node is not known": {func(api, *appsv1.ControllerRevision) {}, "!read node node-1"},
		"the variants are gone": {func(a api, r *appsv1.ControllerRevision) {
			a[nodePath] = node(nil, "10Gi")
			delete(a, revisionsPath+"/"+r.Name)
		}, "!read the variants of DaemonSet default/agent"},
		"others are in their place": {func(a api, r *appsv1.ControllerRevision) {
			a[nodePath] = node(nil, "10Gi")
			r.Data.Raw = []byte(`{"variants":[{"name":"mine","patch":{"spec":{"hostPID":true}}}]}`)
		}, "!does not hold the variants " + set.ID},
		"it is not readable": {func(a api, r *appsv1.ControllerRevision) {
			a[nodePath] = node(nil, "10Gi")
			r.Data.Raw = []byte(`{"variants":7}`)
		}, "!read stored variants"},
	} {
		objects, status := pinning(t)
		status.StableRevision, status.TargetRevision, status.Images = "hash_"+set.ID, "hash_"+set.ID, nil
		ds := objects[setPath].(*appsv1.DaemonSet)
		holds := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: variants.NameOf(ds, set.ID)},
			Data:       runtime.RawExtension{Raw: []byte(`{"variants":` + string(text) + `}`)},
		}
		objects[revisionsPath+"/"+holds.Name] = holds
		c.change(objects, holds)
		s := newServer(t, objects, false)
		for range 2 { // once more by what is kept
			got := made(t, s, objects)
			if says, refused := strings.CutPrefix(c.says, "!"); refused {
				if got.Allowed || !strings.Contains(got.Result.Message, says) {
					t.Errorf("%s: the answer is %s (%+v)", name, got.Patch, got)
				}
			} else if !got.Allowed || !strings.Contains(string(got.Patch), says) {
				t.Errorf("%s: the answer is %s (%+v)", name, got.Patch, got)
			}
		}
	}
}

// TestPodsOfANewDaemonSetWaitForVariants: the one who leads is about to store them. Where the kind is not there, nobody
// waits.
func TestPodsOfANewDaemonSetWaitForVariants(t *testing.T) {
	for name, c := range map[string]struct {
		of   *v1alpha1.DaemonSetVariantList
		made bool
	}{
		"it is chosen": {&v1alpha1.DaemonSetVariantList{Items: []v1alpha1.DaemonSetVariant{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}}}, false},
		"there are none":        {&v1alpha1.DaemonSetVariantList{}, true},
		"the kind is not there": {nil, true},
	} {
		objects, _ := pinning(t)
		objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0].Spec.Images = v1alpha1.ImagesAsWritten
		delete(objects, rolloutPath)
		objects[setPath].(*appsv1.DaemonSet).CreationTimestamp = metav1.Now()
		if c.of != nil {
			objects["/apis/everynode.io/v1alpha1/namespaces/default/daemonsetvariants"] = c.of
		}
		if got := made(t, newServer(t, objects, false), objects); got.Allowed != c.made || got.Patch != nil {
			t.Errorf("%s: the answer is %+v", name, got)
		}
	}
}
