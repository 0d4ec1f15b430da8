package kinds

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// dryRun makes nothing.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// A limit range is kept, gives pods their defaults, and stands in the way of others until it is gone.
func limitRanges(t *testing.T, c cluster) {
	ctx, api, pods := t.Context(), c.Client.CoreV1().LimitRanges(c.namespace), c.Client.CoreV1().Pods(c.namespace)
	limit := &corev1.LimitRange{ObjectMeta: named("limit"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: "Container", Min: amounts("cpu", "50m"), Max: amounts("cpu", "500m", "memory", "1Gi"), DefaultRequest: amounts("cpu", "100m")}}}}
	limit = must(api.Create(ctx, limit, metav1.CreateOptions{}))(t)
	if d := limit.Spec.Limits[0].Default; d.Cpu().String() != "500m" || d.Memory().String() != "1Gi" {
		t.Errorf("the defaults are %v", d)
	}
	c.Eventually("pods get their defaults", func(ctx context.Context) error {
		pod, err := pods.Create(ctx, onePod("plain"), dryRun)
		if err != nil {
			return err
		}
		if r := pod.Spec.Containers[0].Resources; r.Requests.Cpu().String() != "100m" || r.Limits.Memory().String() != "1Gi" || pod.Status.QOSClass != corev1.PodQOSBurstable {
			return fmt.Errorf("the pod has %v, %s", r, pod.Status.QOSClass)
		}
		return nil
	})
	large := onePod("large")
	large.Spec.Containers[0].Resources.Limits = amounts("cpu", "2")
	_, err := pods.Create(ctx, large, dryRun)
	refused(t, err, metav1.StatusReasonForbidden, "maximum cpu usage per Container is 500m, but limit is 2")
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=limit"}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("a large pod is taken", func(ctx context.Context) error {
		_, err := pods.Create(ctx, large, dryRun)
		return err
	})
}

// used is met when a quota says that so much is used, and that its limits hold.
func used(c cluster, name string, want corev1.ResourceList) func(context.Context) error {
	return func(ctx context.Context) error {
		q, err := c.Client.CoreV1().ResourceQuotas(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for resource, amount := range want {
			if got, ok := q.Status.Used[resource]; !ok || got.Cmp(amount) != 0 || len(q.Status.Hard) != len(q.Spec.Hard) {
				return fmt.Errorf("%v of %v are used, want %v", q.Status.Used, q.Status.Hard, want)
			}
		}
		return nil
	}
}

// known waits until admission, which learns of quotas like everybody else, refuses one more pod with that text.
func known(c cluster, text string) {
	c.Eventually("admission knows the quota", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Pods(c.namespace).Create(ctx, onePod("probe"), dryRun)
		return refusal(func() error { return err }, text)(ctx)
	})
}

// A quota counts what there is, charges what is made, refuses what is too much, and gets back what goes.
func resourceQuotas(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	quota := &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: amounts("pods", "2", "requests.cpu", "1", "services", "2", "services.nodeports", "1",
		"secrets", "1", "configmaps", "100", "count/replicasets.apps", "1", "count/podtemplates", "1", "count/customresourcedefinitions.apiextensions.k8s.io", "1")}}
	must(core.ResourceQuotas(c.namespace).Create(ctx, quota, metav1.CreateOptions{}))(t)
	// What is no object of a namespace is not counted.
	c.Eventually("it counts what there is", func(ctx context.Context) error {
		// The certificates of the cluster's authorities come into each namespace a moment after it is made.
		there := len(must(core.ConfigMaps(c.namespace).List(ctx, metav1.ListOptions{}))(t).Items)
		q := must(core.ResourceQuotas(c.namespace).Get(ctx, "q", metav1.GetOptions{}))(t)
		if amount := q.Status.Used["configmaps"]; len(q.Status.Hard) != 9 || len(q.Status.Used) != 8 || there == 0 || amount.Value() != int64(there) {
			return fmt.Errorf("%d ConfigMaps: %v", there, q.Status)
		}
		return nil
	})
	pod := onePod("first")
	known(c, "failed quota: q: must specify requests.cpu for: c")
	pod.Spec.Containers[0].Resources.Requests = amounts("cpu", "600m")
	must(core.Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{}))(t)
	c.Eventually("a pod is charged", used(c, "q", amounts("pods", "1", "requests.cpu", "600m")))
	pod.Name = "second"
	_, err := core.Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1")

	service := &corev1.Service{ObjectMeta: named("s"), Spec: corev1.ServiceSpec{Type: "NodePort", Ports: []corev1.ServicePort{{Port: 80}}}}
	must(core.Services(c.namespace).Create(ctx, service, metav1.CreateOptions{}))(t)
	service.Name = "t"
	_, err = core.Services(c.namespace).Create(ctx, service, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1")
	must(core.Secrets(c.namespace).Create(ctx, &corev1.Secret{ObjectMeta: named("s")}, metav1.CreateOptions{}))(t)
	set := &appsv1.ReplicaSet{ObjectMeta: named("rs"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rs"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: named("rs"), Spec: onePod("rs").Spec}}}
	must(c.Client.AppsV1().ReplicaSets(c.namespace).Create(ctx, set, metav1.CreateOptions{}))(t)
	must(core.PodTemplates(c.namespace).Create(ctx, &corev1.PodTemplate{ObjectMeta: named("t"), Template: set.Spec.Template}, metav1.CreateOptions{}))(t)
	c.Eventually("all are charged", used(c, "q", amounts("services", "1", "services.nodeports", "1", "secrets", "1", "count/replicasets.apps", "1", "count/podtemplates", "1")))
	_, err = core.PodTemplates(c.namespace).Create(ctx, &corev1.PodTemplate{ObjectMeta: named("u"), Template: set.Spec.Template}, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonForbidden, "exceeded quota: q, requested: count/podtemplates=1")

	for what, remove := range map[string]error{
		"pod":      core.Pods(c.namespace).Delete(ctx, "first", *metav1.NewDeleteOptions(0)),
		"service":  core.Services(c.namespace).Delete(ctx, "s", metav1.DeleteOptions{}),
		"secret":   core.Secrets(c.namespace).Delete(ctx, "s", metav1.DeleteOptions{}),
		"set":      c.Client.AppsV1().ReplicaSets(c.namespace).Delete(ctx, "rs", metav1.DeleteOptions{}),
		"template": core.PodTemplates(c.namespace).Delete(ctx, "t", metav1.DeleteOptions{}),
	} {
		if remove != nil {
			t.Fatalf("delete the %s: %v", what, remove)
		}
	}
	c.Eventually("all is given back", used(c, "q", amounts("pods", "0", "requests.cpu", "0", "services", "0", "services.nodeports", "0", "secrets", "0", "count/replicasets.apps", "0", "count/podtemplates", "0")))
	must(core.ResourceQuotas(c.namespace).Patch(ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"7"}}}`), metav1.PatchOptions{}))(t)
	c.Eventually("another limit holds", func(ctx context.Context) error {
		q := must(core.ResourceQuotas(c.namespace).Get(ctx, "q", metav1.GetOptions{}))(t)
		if amount := q.Status.Hard["pods"]; amount.Value() != 7 {
			return fmt.Errorf("%v", q.Status)
		}
		return nil
	})
}

// Quotas with scopes count those pods only.
func quotaScopes(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	for _, scope := range []corev1.ResourceQuotaScope{"BestEffort", "NotBestEffort", "Terminating", "NotTerminating"} {
		must(core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q-" + lower(scope)),
			Spec: corev1.ResourceQuotaSpec{Hard: amounts("pods", "3"), Scopes: []corev1.ResourceQuotaScope{scope}}}, metav1.CreateOptions{}))(t)
		c.Eventually("the quota is known", used(c, "q-"+lower(scope), amounts("pods", "0")))
	}
	best, long := onePod("best"), onePod("long")
	best.Spec.ActiveDeadlineSeconds = new(int64(3600))
	long.Spec.Containers[0].Resources.Requests = amounts("cpu", "10m")
	for _, p := range []*corev1.Pod{best, long} {
		must(core.Pods(c.namespace).Create(ctx, p, metav1.CreateOptions{}))(t)
	}
	for _, scope := range []corev1.ResourceQuotaScope{"BestEffort", "NotBestEffort", "Terminating", "NotTerminating"} {
		c.Eventually("one pod in "+string(scope), used(c, "q-"+lower(scope), amounts("pods", "1")))
	}
	// A pod that goes gives back what it had of the quotas that are about it, and of no others.
	for _, gone := range []struct {
		pod  string
		left map[corev1.ResourceQuotaScope]string
	}{
		{"best", map[corev1.ResourceQuotaScope]string{"BestEffort": "0", "Terminating": "0", "NotBestEffort": "1", "NotTerminating": "1"}},
		{"long", map[corev1.ResourceQuotaScope]string{"BestEffort": "0", "Terminating": "0", "NotBestEffort": "0", "NotTerminating": "0"}},
	} {
		if err := core.Pods(c.namespace).Delete(ctx, gone.pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		for scope, left := range gone.left {
			c.Eventually(fmt.Sprintf("without %s %s of %s is used", gone.pod, left, scope), used(c, "q-"+lower(scope), amounts("pods", left)))
		}
	}
}

func lower(s corev1.ResourceQuotaScope) string {
	out := []byte(s)
	for i, b := range out {
		if b < 'a' {
			out[i] = b + 'a' - 'A'
		}
	}
	return string(out)
}

// A daemon for which the quota leaves no room says so, and comes when there is room.
func daemonsInAQuota(t *testing.T, c cluster) {
	ctx, core, sets := t.Context(), c.Client.CoreV1(), c.Client.AppsV1().DaemonSets(c.namespace)
	must(core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: amounts("pods", "0")}}, metav1.CreateOptions{}))(t)
	known(c, "exceeded quota: q")
	set := &appsv1.DaemonSet{ObjectMeta: named("d"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "d"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}}, Spec: onePod("d").Spec}}}
	must(sets.Create(ctx, set, metav1.CreateOptions{}))(t)
	c.Eventually("an event says why there is no daemon", func(ctx context.Context) error {
		events := must(core.Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=d,reason=FailedCreate"}))(t)
		for _, e := range events.Items {
			return refusal(func() error { return fmt.Errorf("%s", e.Message) }, "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0")(ctx)
		}
		return fmt.Errorf("there is none")
	})
	must(core.ResourceQuotas(c.namespace).Patch(ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"1"}}}`), metav1.PatchOptions{}))(t)
	c.Eventually("the daemon comes", func(ctx context.Context) error {
		d := must(sets.Get(ctx, "d", metav1.GetOptions{}))(t)
		if d.Status.NumberAvailable != 1 {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
}
