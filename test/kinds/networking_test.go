package kinds

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

// warned collects warnings that come with answers.
type warned struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// An Ingress gets its class, keeps the status that its controller writes, and a NetworkPolicy says who keeps it.
func networkKinds(t *testing.T, c cluster) {
	ctx, api := t.Context(), c.Client.NetworkingV1()
	class := &networkingv1.IngressClass{ObjectMeta: named("web"), Spec: networkingv1.IngressClassSpec{Controller: "example.com/web"}}
	class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	class = must(api.IngressClasses().Create(ctx, class, metav1.CreateOptions{}))(t)
	if class.Generation != 1 {
		t.Errorf("%v", class)
	}
	_, err := api.IngressClasses().Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"controller":"example.com/other"}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec.controller: Invalid value: \"example.com/other\": field is immutable")

	ingresses := api.Ingresses(c.namespace)
	ingress := &networkingv1.Ingress{ObjectMeta: named("i"), Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}
	c.Eventually("an Ingress gets the default class", func(ctx context.Context) error {
		got, err := ingresses.Create(ctx, ingress, dryRun)
		if err == nil && (got.Spec.IngressClassName == nil || *got.Spec.IngressClassName != "web") {
			err = fmt.Errorf("%v", got.Spec)
		}
		return err
	})
	ingress = must(ingresses.Create(ctx, ingress, metav1.CreateOptions{}))(t)
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "nowhere"}, {Hostname: "10.0.0.1"}}
	_, err = ingresses.UpdateStatus(ctx, ingress, metav1.UpdateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "status.loadBalancer.ingress[0].ip: Invalid value: \"nowhere\"")
	refused(t, err, metav1.StatusReasonInvalid, "status.loadBalancer.ingress[1].hostname: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address")
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.1"}}
	ingress.Spec.DefaultBackend = nil // is not the status's
	got := must(ingresses.UpdateStatus(ctx, ingress, metav1.UpdateOptions{}))(t)
	if got.Status.LoadBalancer.Ingress[0].IP != "10.0.0.1" || got.Spec.DefaultBackend == nil || got.Generation != 1 {
		t.Errorf("%+v", got)
	}
	got = must(ingresses.Patch(ctx, "i", types.MergePatchType, []byte(`{"spec":{"ingressClassName":"other"}}`), metav1.PatchOptions{}))(t)
	if got.Generation != 2 || len(got.Status.LoadBalancer.Ingress) != 1 {
		t.Errorf("%+v", got)
	}
	if err := ingresses.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=i"}); err != nil {
		t.Error(err)
	}

	told := &warned{}
	config := restclient.CopyConfig(c.Config)
	config.WarningHandlerWithContext = told
	client := must(kubernetes.NewForConfig(config))(t)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: named("p"), Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{}}}}}}
	policy = must(client.NetworkingV1().NetworkPolicies(c.namespace).Create(ctx, policy, metav1.CreateOptions{}))(t)
	if fmt.Sprintf("%v %v", policy.Spec.PolicyTypes, *policy.Spec.Ingress[0].Ports[0].Protocol) != "[Ingress] TCP" {
		t.Errorf("%v", policy.Spec)
	}
	const text = "the pod network of Everynode keeps no network policies; without a network daemon that does, all pods reach each other as before"
	if !slices.Equal(told.texts, []string{text}) {
		t.Errorf("the warnings are %q", told.texts)
	}
}
