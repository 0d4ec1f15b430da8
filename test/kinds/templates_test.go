package kinds

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A template is made, read, watched, changed, replaced, listed in parts, and deleted alone and with others.
func podTemplates(t *testing.T, c cluster) {
	ctx, api := t.Context(), c.Client.CoreV1().PodTemplates(c.namespace)
	for i := range 7 {
		template := &corev1.PodTemplate{ObjectMeta: named(fmt.Sprint("t", i))}
		template.Labels = map[string]string{"set": "a"}
		template.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		must(api.Create(ctx, template, metav1.CreateOptions{}))(t)
	}
	first := must(api.Get(ctx, "t0", metav1.GetOptions{}))(t)
	if first.Generation != 1 || first.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("stored %v", first)
	}
	seen := must(api.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=t0", ResourceVersion: first.ResourceVersion}))(t)
	defer seen.Stop()
	patched := must(api.Patch(ctx, "t0", types.StrategicMergePatchType, []byte(`{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}`), metav1.PatchOptions{}))(t)
	if patched.Generation != 2 || patched.Template.Spec.Containers[0].Image != "j" {
		t.Errorf("patched %v", patched)
	}
	if e := <-seen.ResultChan(); e.Type != watch.Modified {
		t.Errorf("the watch told %v", e)
	}
	patched.Annotations = map[string]string{"note": "x"}
	if replaced := must(api.Update(ctx, patched, metav1.UpdateOptions{}))(t); replaced.Generation != 2 || replaced.Annotations["note"] != "x" {
		t.Errorf("replaced %v", replaced.ObjectMeta)
	}
	var found int
	for options := (metav1.ListOptions{Limit: 3}); ; {
		part := must(api.List(ctx, options))(t)
		found += len(part.Items)
		options.Continue = part.Continue
		if part.Continue == "" {
			break
		}
	}
	if found != 7 {
		t.Errorf("found %d in parts", found)
	}
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "set=a"}); err != nil {
		t.Error(err)
	}
	if left := must(api.List(ctx, metav1.ListOptions{}))(t); len(left.Items) != 0 {
		t.Errorf("%d are left", len(left.Items))
	}
}

// A pod of a class gets what the class says, and a pod of an unknown class is refused.
func runtimeClasses(t *testing.T, c cluster) {
	ctx, api, pods := t.Context(), c.Client.NodeV1().RuntimeClasses(), c.Client.CoreV1().Pods(c.namespace)
	class := &nodev1.RuntimeClass{ObjectMeta: named("vm"), Handler: "kata",
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("10m")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: "Exists"}}}}
	class = must(api.Create(ctx, class, metav1.CreateOptions{}))(t)
	pod := onePod("in-vm")
	pod.Spec.RuntimeClassName = new("vm")
	pod = must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)
	if pod.Spec.Overhead.Cpu().String() != "10m" || pod.Spec.NodeSelector["kubernetes.io/os"] != "linux" ||
		!slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "vm" }) {
		t.Errorf("the pod is %v", pod.Spec)
	}
	changed := class.DeepCopy()
	changed.Handler = "other"
	_, err := api.Update(ctx, changed, metav1.UpdateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, `handler: Invalid value: "other": field is immutable`)
	if err := api.Delete(ctx, "vm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("a pod of a class that is gone is refused", refusal(func() error {
		again := onePod("again")
		again.Spec.RuntimeClassName = new("vm")
		_, err := pods.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}, `pods "again" is forbidden: pod rejected: RuntimeClass "vm" not found`))
}
