package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
)

// at is a Service that asks for an address, or for any.
func at(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(name), Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func readiness(c *networkingv1.ServiceCIDR) string {
	if ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady); ready != nil {
		return strings.TrimSpace(string(ready.Status) + " " + ready.Reason)
	}
	return ""
}

// A ServiceCIDR widens what Services get, and stays until no Service needs it.
func serviceNetworks(t *testing.T, c cluster) {
	ctx, api, services := t.Context(), c.Client.NetworkingV1().ServiceCIDRs(), c.Client.CoreV1().Services(c.namespace)
	becomes := func(name, want string) {
		t.Helper()
		c.Eventually(name+" is "+want, func(ctx context.Context) error {
			got, err := api.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) && want == "gone" {
				return nil
			}
			if err == nil && readiness(got) != want {
				err = fmt.Errorf("it is %q: %v", readiness(got), got.Status)
			}
			return err
		})
	}
	standard := must(api.Get(ctx, "kubernetes", metav1.GetOptions{}))(t)
	if fmt.Sprint(standard.Spec.CIDRs, standard.Finalizers) != "[10.96.0.0/16] [networking.k8s.io/service-cidr-finalizer]" {
		t.Errorf("the default is %v %v", standard.Spec, standard.Finalizers)
	}
	becomes("kubernetes", "True")

	_, err := services.Create(ctx, at("early", "10.97.3.4"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "the provided IP (10.97.3.4) is not in the valid range. The range of valid IPs is 10.96.0.0/16")
	_, err = api.Create(ctx, &networkingv1.ServiceCIDR{ObjectMeta: named("other-family"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00::/108"}}}, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, `spec.cidrs[0]: Invalid value: "fd00::/108": the Services of this cluster have addresses of one family, that of 10.96.0.0/16`)
	_, err = api.Apply(ctx, applynetworkingv1.ServiceCIDR("other-family").WithSpec(applynetworkingv1.ServiceCIDRSpec().WithCIDRs("10.97.0.0/16", "fd00::/108")), metav1.ApplyOptions{FieldManager: "t"})
	refused(t, err, metav1.StatusReasonInvalid, `spec.cidrs[1]: Invalid value: "fd00::/108"`)

	more := &networkingv1.ServiceCIDR{ObjectMeta: named("more"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.3.0/28"}}}
	more.Status.Conditions = []metav1.Condition{{Type: "Mine", Status: metav1.ConditionTrue}}
	made := must(api.Create(ctx, more, metav1.CreateOptions{}))(t)
	if len(made.Status.Conditions) != 0 || len(made.Finalizers) != 1 {
		t.Errorf("a new one is %v %v", made.Status, made.Finalizers)
	}
	becomes("more", "True")
	_, err = api.Patch(ctx, "more", types.MergePatchType, []byte(`{"spec":{"cidrs":["10.97.4.0/28"]}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec.cidrs: Invalid value: [\"10.97.4.0/28\"]: field is immutable")
	applied := must(api.ApplyStatus(ctx, applynetworkingv1.ServiceCIDR("more").WithLabels(map[string]string{"x": "y"}).WithStatus(applynetworkingv1.ServiceCIDRStatus().
		WithConditions(applymetav1.Condition().WithType("Mine").WithStatus(metav1.ConditionTrue))), metav1.ApplyOptions{FieldManager: "t"}))(t)
	if meta.FindStatusCondition(applied.Status.Conditions, "Mine") == nil || readiness(applied) != "True" || applied.Labels["x"] != "" {
		t.Errorf("after a status of another manager: %v %v", applied.Status, applied.Labels)
	}
	got := must(services.Create(ctx, at("there", "10.97.3.4"), metav1.CreateOptions{}))(t)
	if err := errors.Join(api.Delete(ctx, "more", metav1.DeleteOptions{}), api.Delete(ctx, "more", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	becomes("more", "False Terminating")
	_, err = services.Create(ctx, at("late", "10.97.3.5"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "the provided IP (10.97.3.5) is not in the valid range. The range of valid IPs is 10.96.0.0/16")
	got.Annotations = map[string]string{"still": "mine"}
	must(services.Update(ctx, got, metav1.UpdateOptions{}))(t)
	if err := services.Delete(ctx, "there", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("more", "gone")

	// One that another covers goes at once; and that other one holds what both had.
	for name, cidr := range map[string]string{"inner": "10.98.0.0/28", "outer": "10.98.0.0/24"} {
		must(api.Create(ctx, &networkingv1.ServiceCIDR{ObjectMeta: named(name), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}, metav1.CreateOptions{}))(t)
	}
	must(services.Create(ctx, at("both", "10.98.0.1"), metav1.CreateOptions{}))(t)
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=inner"}); err != nil {
		t.Fatal(err)
	}
	becomes("inner", "gone")
	if err := api.Delete(ctx, "outer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("outer", "False Terminating")
	// A Service gives its address back also where it stays.
	must(services.Patch(ctx, "both", types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}`), metav1.PatchOptions{}))(t)
	becomes("outer", "gone")
}

// An IPAddress shows whose an address is; those of Services come and go with them, and others keep Services off.
func addressKinds(t *testing.T, c cluster) {
	ctx, api, services := t.Context(), c.Client.NetworkingV1().IPAddresses(), c.Client.CoreV1().Services(c.namespace)
	shown := func(ip string) string {
		t.Helper()
		a, err := api.Get(ctx, ip, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "none"
		}
		if err != nil {
			t.Fatal(err)
		}
		if a.UID == "" || a.CreationTimestamp.IsZero() {
			t.Errorf("%s has no UID or no age: %v", ip, a.ObjectMeta)
		}
		p := a.Spec.ParentRef
		return strings.Join([]string{p.Group, p.Resource, p.Namespace, p.Name, a.Labels[networkingv1.LabelManagedBy], a.Labels[networkingv1.LabelIPAddressFamily]}, " ")
	}
	if got := shown("10.96.0.1"); got != " services default kubernetes ipallocator.k8s.io IPv4" {
		t.Errorf("the API's is %q", got)
	}
	svc := must(services.Create(ctx, at("web", ""), metav1.CreateOptions{}))(t)
	ip := svc.Spec.ClusterIP
	if got := shown(ip); got != fmt.Sprintf(" services %s web ipallocator.k8s.io IPv4", c.namespace) {
		t.Errorf("that of a Service is %q", got)
	}
	must(services.Create(ctx, at("dry", "10.96.200.1"), dryRun))(t)
	if got := shown("10.96.200.1"); got != "none" {
		t.Errorf("after a dry run: %q", got)
	}
	refused(t, api.Delete(ctx, ip, metav1.DeleteOptions{}), metav1.StatusReasonForbidden, fmt.Sprintf("it is the address of Service %s/web, and goes with it", c.namespace))
	labelled := must(api.Patch(ctx, ip, types.MergePatchType, []byte(`{"metadata":{"labels":{"mine":"yes"},"annotations":{"a":"b"}}}`), metav1.PatchOptions{}))(t)
	refused(t, api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "mine=yes"}), metav1.StatusReasonForbidden, "goes with it")
	labelled.Spec.ParentRef.Name = "other"
	_, err := api.Update(ctx, labelled, metav1.UpdateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec.parentRef: Invalid value")
	must(services.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"example.com"}}`), metav1.PatchOptions{}))(t)
	if got := shown(ip); got != "none" {
		t.Errorf("after the Service gave it back: %q", got)
	}

	reserve := func(name string) *networkingv1.IPAddress {
		return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": c.namespace}}, Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Group: "gateways.example.com", Resource: "gateways", Namespace: "a", Name: "g"}}}
	}
	for _, name := range []string{"10.96.201.7", "255.255.255.255", "fe80::42:1dff:fe84:f9e2"} {
		must(api.Create(ctx, reserve(name), metav1.CreateOptions{}))(t)
	}
	_, err = services.Create(ctx, at("second", "10.96.201.7"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "failed to allocate IP 10.96.201.7: provided IP is already allocated")
	_, err = api.Create(ctx, reserve("10.96.0.1"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonAlreadyExists, "")
	_, err = api.Create(ctx, reserve("10.96.0.01"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "must not have leading 0s")
	list := must(api.List(ctx, metav1.ListOptions{LabelSelector: "of=" + c.namespace}))(t)
	watch := must(api.Watch(ctx, metav1.ListOptions{LabelSelector: "of=" + c.namespace, ResourceVersion: list.ResourceVersion}))(t)
	defer watch.Stop()
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=" + c.namespace}); err != nil || len(list.Items) != 3 {
		t.Errorf("%d are deleted: %v", len(list.Items), err)
	}
	for range list.Items {
		if e := <-watch.ResultChan(); e.Type != "DELETED" {
			t.Errorf("watched %v", e)
		}
	}
	must(services.Create(ctx, at("second", "10.96.201.7"), metav1.CreateOptions{}))(t)
	if got := shown("10.96.201.7"); got != fmt.Sprintf(" services %s second ipallocator.k8s.io IPv4", c.namespace) {
		t.Errorf("after a gateway gave it back, and a Service took it: %q", got)
	}
	if err := services.Delete(ctx, "second", metav1.DeleteOptions{}); err != nil || shown("10.96.201.7") != "none" {
		t.Errorf("after the Service: %q, %v", shown("10.96.201.7"), err)
	}
}
