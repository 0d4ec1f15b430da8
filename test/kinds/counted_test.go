package kinds

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// A quota counts ReplicationControllers and ConfigMaps as they come and go, its status is made right again, and its pods may
// be relabelled though there is no room for more.
func countedKinds(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	quotas := core.ResourceQuotas(c.namespace)
	rc := &corev1.ReplicationController{ObjectMeta: named("rc"), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(0)),
		Template: &corev1.PodTemplateSpec{ObjectMeta: named("rc"), Spec: onePod("rc").Spec}}}
	hard := amounts("replicationcontrollers", "1", "count/configmaps", "100", "pods", "1")
	must(quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{}))(t)
	c.Eventually("nothing is used", used(c, "q", amounts("replicationcontrollers", "0", "pods", "0")))
	// The cluster puts a ConfigMap of its own into each namespace.
	c.Eventually("the cluster's ConfigMap is counted", used(c, "q", amounts("count/configmaps", "1")))
	must(core.ReplicationControllers(c.namespace).Create(ctx, rc, metav1.CreateOptions{}))(t)
	must(core.ConfigMaps(c.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: named("m")}, metav1.CreateOptions{}))(t)
	pod := must(core.Pods(c.namespace).Create(ctx, onePod("p"), metav1.CreateOptions{}))(t)
	full := amounts("replicationcontrollers", "1", "count/configmaps", "2", "pods", "1")
	c.Eventually("all three are counted", used(c, "q", full))
	rc.Name = "more"
	_, err := core.ReplicationControllers(c.namespace).Create(ctx, rc, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q, requested: replicationcontrollers=1, used: replicationcontrollers=1, limited: replicationcontrollers=1")
	must(core.Pods(c.namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))(t)

	must(quotas.Patch(ctx, "q", types.MergePatchType, []byte(`{"status":{"hard":{"pods":"7"},"used":{"pods":"6"}}}`), metav1.PatchOptions{}, "status"))(t)
	c.Eventually("a status that is wrong is made right", func(ctx context.Context) error {
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		if limit := q.Status.Hard["pods"]; err == nil && limit.Value() != 1 {
			err = fmt.Errorf("it is %v", q.Status)
		}
		if err != nil {
			return err
		}
		return used(c, "q", full)(ctx)
	})
	for what, err := range map[string]error{
		"controller": core.ReplicationControllers(c.namespace).Delete(ctx, "rc", metav1.DeleteOptions{}),
		"map":        core.ConfigMaps(c.namespace).Delete(ctx, "m", metav1.DeleteOptions{}),
		"pod":        core.Pods(c.namespace).Delete(ctx, "p", *metav1.NewDeleteOptions(0)),
	} {
		if err != nil {
			t.Errorf("delete the %s: %v", what, err)
		}
	}
	c.Eventually("all three are given back", used(c, "q", amounts("replicationcontrollers", "0", "count/configmaps", "1", "pods", "0")))
	if err := quotas.Delete(ctx, "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("without the quota there is room", func(ctx context.Context) error {
		for _, name := range []string{"rc", "more"} {
			rc.Name = name
			if _, err := core.ReplicationControllers(c.namespace).Create(ctx, rc, dryRun); err != nil {
				return err
			}
		}
		return nil
	})
}

// A quota counts what there is of an added kind, and admits no more.
func countedAdded(t *testing.T, c cluster) {
	ctx := t.Context()
	dynamicClient := must(dynamic.NewForConfig(c.Config))(t)
	definitions := dynamicClient.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.counted.example.com"},
		"spec":{"group":"counted.example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)); err != nil {
		t.Fatal(err)
	}
	must(definitions.Create(ctx, definition, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = definitions.Delete(context.WithoutCancel(ctx), definition.GetName(), metav1.DeleteOptions{})
	})
	things := dynamicClient.Resource(schema.GroupVersionResource{Group: "counted.example.com", Version: "v1", Resource: "things"}).Namespace(c.namespace)
	thing := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "counted.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name}}}
	}
	for _, name := range []string{"a", "b"} {
		c.Eventually("a thing is made", func(ctx context.Context) error {
			_, err := things.Create(ctx, thing(name), metav1.CreateOptions{})
			return err
		})
	}
	must(c.Client.CoreV1().ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{
		Hard: amounts("count/things.counted.example.com", "2")}}, metav1.CreateOptions{}))(t)
	c.Eventually("those that were there are counted", used(c, "q", amounts("count/things.counted.example.com", "2")))
	c.Eventually("a third is refused", refusal(func() error {
		_, err := things.Create(ctx, thing("c"), dryRun)
		return err
	}, "exceeded quota: q, requested: count/things.counted.example.com=1, used: count/things.counted.example.com=2, limited: count/things.counted.example.com=2"))
}

// A limit range that changes holds as it is now, and a class without overhead adds nothing to its pods, which are scheduled.
func changedLimits(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	sized := func(request string) func(context.Context) error {
		pod := onePod("sized")
		pod.Spec.Containers[0].Resources.Requests = amounts("cpu", request)
		return func(ctx context.Context) error {
			_, err := core.Pods(c.namespace).Create(ctx, pod, dryRun)
			return err
		}
	}
	limit := &corev1.LimitRange{ObjectMeta: named("l"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: "Container", Min: amounts("cpu", "50m"), Max: amounts("cpu", "500m")}}}}
	must(core.LimitRanges(c.namespace).Create(ctx, limit, metav1.CreateOptions{}))(t)
	c.Eventually("too little is refused", refusal(func() error { return sized("10m")(ctx) }, "minimum cpu usage per Container is 50m, but request is 10m"))
	must(core.LimitRanges(c.namespace).Patch(ctx, "l", types.StrategicMergePatchType, []byte(`{"spec":{"limits":[{"type":"Container","min":{"cpu":"5m"},"max":{"cpu":"800m"}}]}}`), metav1.PatchOptions{}))(t)
	c.Eventually("it is taken when the limit is lower", sized("10m"))
	if err := refusal(func() error { return sized("900m")(ctx) }, "must be less than or equal to cpu limit")(ctx); err != nil {
		t.Error(err)
	}

	must(c.Client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: named("bare"), Handler: "runc"}, metav1.CreateOptions{}))(t)
	pod := onePod("in-bare")
	pod.Spec.RuntimeClassName = new("bare")
	c.Eventually("a pod of the class is made", func(ctx context.Context) error {
		made, err := core.Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil && made.Spec.Overhead != nil {
			t.Errorf("its overhead is %v", made.Spec.Overhead)
		}
		return err
	})
	c.Eventually("it is scheduled", func(ctx context.Context) error {
		p, err := core.Pods(c.namespace).Get(ctx, "in-bare", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("its conditions are %v", p.Status.Conditions)
		}
		return err
	})
	unknown := onePod("nowhere")
	unknown.Spec.RuntimeClassName = new("never-was")
	_, err := core.Pods(c.namespace).Create(ctx, unknown, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, `pod rejected: RuntimeClass "never-was" not found`)
}
