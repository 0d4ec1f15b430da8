package servicecidr

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// What is said of a ServiceCIDR, in Kubernetes' words.
var (
	ready = metav1.Condition{
		Type:    networkingv1.ServiceCIDRConditionReady,
		Status:  metav1.ConditionTrue,
		Message: "Kubernetes Service CIDR is ready",
	}
	terminating = metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse,
		Reason:  networkingv1.ServiceCIDRReasonTerminating,
		Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
	}
)

// makeDefault makes the default ServiceCIDR again, as each start of a server does.
func (c controller) makeDefault(ctx context.Context) error {
	klog.FromContext(ctx).V(3).Info("Making the default ServiceCIDR", "cidr", c.cfg.Configured)
	_, err := c.cfg.Client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: servicenetwork.Default},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{c.cfg.Configured.String()}},
	}, metav1.CreateOptions{})
	return settled("make", servicenetwork.Default, err)
}

// keep gives a ServiceCIDR the finalizer, and says that it is ready.
func (c controller) keep(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	if !slices.Contains(cidr.Finalizers, servicenetwork.Finalizer) {
		changed := cidr.DeepCopy()
		changed.Finalizers = append(changed.Finalizers, servicenetwork.Finalizer)
		return c.update(ctx, changed)
	}
	return c.say(ctx, cidr, ready)
}

// release takes the finalizer away.
func (c controller) release(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	changed := cidr.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool {
		return f == servicenetwork.Finalizer
	})
	return c.update(ctx, changed)
}

func (c controller) update(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	klog.FromContext(ctx).V(3).Info(
		"Writing the finalizers of a ServiceCIDR", "serviceCIDR", cidr.Name, "finalizers", cidr.Finalizers,
	)
	_, err := c.cfg.Client.NetworkingV1().ServiceCIDRs().Update(ctx, cidr, metav1.UpdateOptions{})
	return settled("update", cidr.Name, err)
}

func (c controller) say(ctx context.Context, cidr *networkingv1.ServiceCIDR, what metav1.Condition) error {
	changed := cidr.DeepCopy()
	if !meta.SetStatusCondition(&changed.Status.Conditions, what) {
		return nil
	}
	klog.FromContext(ctx).V(3).Info("Writing the status of a ServiceCIDR", "serviceCIDR", cidr.Name, "ready", what.Status)
	_, err := c.cfg.Client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return settled("write the status of", cidr.Name, err)
}

// settled is the error of a write, unless what was quicker brings us back.
func settled(did, name string, err error) error {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("%s ServiceCIDR %s: %w", did, name, err)
}
