package plan

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant/resizing"
)

// A plan of variants says which nodes get which, what their pods request before and after, and which nodes are resized,
// restarted for it or get another pod, in the steps of the policy.
func TestPlanOfVariants(t *testing.T) {
	w := surveytest.New(t)
	ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
	c := &ds.Spec.Template.Spec.Containers[0]
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	hash := w.Revise(ds)
	for name, size := range map[string]string{"node-a": "s", "node-b": "s", "node-c": "m", "node-d": "xl", "node-e": "none"} {
		w.Node(name, surveytest.Label("size", size), func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourceCPU], n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("4"), resource.MustParse("16Gi")
			n.Status.Capacity = n.Status.Allocatable
		})
		w.Pod(ds, name, hash, surveytest.ReadyAfter(20*time.Second))
	}
	w.Policy("careful", "waves: [{name: canary, nodes: {matchLabels: {size: m}}}]")
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: hash, TargetRevision: hash, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation})
	vary := func(name string, patch string, cpu, memory string) *v1alpha1.DaemonSetVariant {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: name, UID: types.UID(name)}}
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": name}}
		if patch != "" {
			v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
		}
		of := map[corev1.ResourceName]string{corev1.ResourceCPU: cpu}
		if memory != "" {
			of[corev1.ResourceMemory] = memory
		}
		v.Spec.Resources = map[string]v1alpha1.VariantResources{c.Name: {Requests: of}}
		return v
	}
	s, m, xl := vary("s", "", "0.1", ""), vary("m", "", "0.2", "quantity('256Mi')"), vary("xl", `{"spec":{"terminationGracePeriodSeconds":7}}`, "8.0", "")
	if f := forecast(t, w, ds, ds); f.Changes() || len(f.Variants) > 0 {
		t.Errorf("without variants: %+v", f)
	}
	// There are none any more. The rollout came from some, and a node that is not in its turn has no pod.
	status, pods := &w.Objects.Rollouts[0].Status, w.Objects.Pods
	was := *status
	status.Phase, status.StableRevision = v1alpha1.PhaseProgressing, content.WithVariants(hash, "gone")
	w.Objects.Pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "node-a" || p.Spec.NodeName == "node-c"
	})
	if f := forecast(t, w, ds, ds); f.Nodes.Resize != 0 || f.Nodes.Change != 2 {
		t.Errorf("after there were variants: %+v", f)
	}
	*status, w.Objects.Pods = was, pods
	// What comes of a resize is not known yet.
	asked, image := w.Objects.Pods[0].DeepCopy(), ds.DeepCopy()
	asked.Generation, asked.Status.ObservedGeneration = 2, 1
	record, err := (&resizing.Record{Pod: asked.Name, Generation: 2, At: surveytest.Now}).Text()
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&asked.ObjectMeta, resizing.Annotation, record)
	w.Objects.Pods = append([]*corev1.Pod{asked}, pods[1:]...)
	image.Spec.Template.Spec.Containers[0].Image = "example.com/agent:2"
	const granted = "a resize is under way on 1 node, such as "
	if f := forecast(t, w, ds, image); !strings.Contains(strings.Join(f.Warnings, "\n"), granted+asked.Spec.NodeName) {
		t.Errorf("with a resize that is not answered the warnings are %q", f.Warnings)
	}
	w.Objects.Pods = pods
	if f := forecast(t, w, ds, image); strings.Contains(strings.Join(f.Warnings, "\n"), granted) {
		t.Errorf("without one the warnings are %q", f.Warnings)
	}
	w.Objects.Variants, w.Objects.Varied = []*v1alpha1.DaemonSetVariant{s, m, xl}, true
	f := forecast(t, w, ds, ds)
	var out bytes.Buffer
	f.Write(&out)
	text := out.String()
	if n := f.Nodes; !f.Changes() || n.Change != 4 || n.Resize != 3 || n.Restart != 1 || n.Stay != 1 || n.NoRoom != 1 || len(f.Steps) != 2 {
		t.Errorf("nodes are %+v", n)
	}
	for _, want := range []string{
		"4 change (3 resized, 1 of them restarted)",
		"(template) 5 -> 1 5 -> 1 5Gi -> 1Gi", "m 0 -> 1 0 -> 200m 0 -> 256Mi", "s 0 -> 2 0 -> 200m 0 -> 2Gi",
		"xl 0 -> 1 0 -> 8 0 -> 1Gi", "all 5 5 -> 9400m 5Gi -> 4352Mi", "No room on node-d",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	// Two are given amounts by a VerticalPodAutoscaler: formulas are not followed there, and a patch is.
	for i, p := range w.Objects.Pods {
		if p.Spec.NodeName == "node-a" || p.Spec.NodeName == "node-d" {
			w.Objects.Pods[i] = p.DeepCopy()
			metav1.SetMetaDataAnnotation(&w.Objects.Pods[i].ObjectMeta, "vpaUpdates", "container 0: cpu request")
		}
	}
	if n := forecast(t, w, ds, ds).Nodes; n.Change != 3 || n.Resize != 2 {
		t.Errorf("with an autoscaler nodes are %+v", n)
	}
}
