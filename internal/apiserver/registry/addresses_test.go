package registry_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/registry/cronjob"
	"github.com/everynode/everynode/internal/apiserver/registry/daemonset"
	"github.com/everynode/everynode/internal/apiserver/registry/deployment"
	"github.com/everynode/everynode/internal/apiserver/registry/endpoints"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice"
	"github.com/everynode/everynode/internal/apiserver/registry/job"
	"github.com/everynode/everynode/internal/apiserver/registry/node"
	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/apiserver/registry/replicaset"
	"github.com/everynode/everynode/internal/apiserver/registry/statefulset"
)

// answer is what a kind says to an object with these addresses: a new one, or one that
// had others before.
type answer func(now, before []string) field.ErrorList

func specOf(addresses []string) corev1.PodSpec {
	return corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{Nameservers: addresses}, HostAliases: []corev1.HostAlias{{IP: addresses[0], Hostnames: []string{"a"}}}}
}

// update asks with the object of before, or without one.
func update[T any](make func([]string) *T, validate func(*T) field.ErrorList, validateUpdate func(now, before *T) field.ErrorList) answer {
	return func(now, before []string) field.ErrorList {
		if before == nil {
			return validate(make(now))
		}
		return validateUpdate(make(now), make(before))
	}
}

func kindsWithAddresses() map[string]answer {
	return map[string]answer{
		"pod": update(func(a []string) *corev1.Pod { return &corev1.Pod{Spec: specOf(a)} }, pod.Validate, pod.ValidateUpdate),
		"daemonset": update(func(a []string) *appsv1.DaemonSet {
			return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}
		}, daemonset.Validate, daemonset.ValidateUpdate),
		"deployment": update(func(a []string) *appsv1.Deployment {
			return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}
		}, deployment.Validate, deployment.ValidateUpdate),
		"replicaset": update(func(a []string) *appsv1.ReplicaSet {
			return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}
		}, replicaset.Validate, replicaset.ValidateUpdate),
		"statefulset": update(func(a []string) *appsv1.StatefulSet {
			return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}
		}, statefulset.Validate, statefulset.ValidateUpdate),
		"job": update(func(a []string) *batchv1.Job {
			return &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}
		}, job.Validate, job.ValidateUpdate),
		"cronjob": update(func(a []string) *batchv1.CronJob {
			return &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: specOf(a)}}}}}
		}, cronjob.Validate, cronjob.ValidateUpdate),
		"endpoints": update(func(a []string) *corev1.Endpoints { //nolint:staticcheck // Old clients write them.
			subset := corev1.EndpointSubset{NotReadyAddresses: []corev1.EndpointAddress{{IP: a[0]}}} //nolint:staticcheck // See above.
			for _, ip := range a {
				subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: ip})
			}
			return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{subset}} //nolint:staticcheck // See above.
		}, endpoints.Validate, endpoints.ValidateUpdate),
		"endpointslice": update(func(a []string) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: a}}}
		}, endpointslice.Validate, endpointslice.ValidateUpdate),
		"node": update(func(a []string) *corev1.Node {
			return &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: a[0] + "/24", PodCIDRs: []string{a[0] + "/24"}}}
		}, node.Validate, node.ValidateUpdate),
	}
}

// Addresses that some programs read in another way than others are refused, and those that
// an object had before stay.
func TestAmbiguousAddresses(t *testing.T) {
	const zeros = "must not have leading 0s"
	says := func(errs field.ErrorList) int {
		n := 0
		for _, err := range errs {
			if strings.Contains(err.Error(), zeros) {
				n++
			}
		}
		return n
	}
	for kind, ask := range kindsWithAddresses() {
		old, good := []string{"192.168.010.0"}, []string{"192.168.10.0"}
		if says(ask(old, nil)) == 0 {
			t.Errorf("%s: a new one with %s is taken", kind, old)
		}
		if errs := ask(good, nil); says(errs) != 0 {
			t.Errorf("%s: %v", kind, errs)
		}
		if errs := ask(old, old); says(errs) != 0 {
			t.Errorf("%s: one that had it before: %v", kind, errs)
		}
		if kind == "pod" || kind == "node" {
			continue // they cannot change it at all
		}
		if says(ask(old, good)) == 0 {
			t.Errorf("%s: a change to %s is taken", kind, old)
		}
		if says(ask([]string{"192.168.010.0", "192.168.011.0"}, old)) == 0 {
			t.Errorf("%s: one more is taken", kind)
		}
	}
	// An endpoint more is a change of all: as large lists as these are not compared
	// address by address.
	for kind, want := range map[string]bool{"endpoints": true, "endpointslice": true, "daemonset": false} {
		errs := kindsWithAddresses()[kind]([]string{"192.168.010.0", "192.168.12.0"}, []string{"192.168.010.0"})
		if got := says(errs) > 0; got != want {
			t.Errorf("%s: with another address that is in order: %v", kind, errs)
		}
	}
	if errs := kindsWithAddresses()["node"]([]string{"192.168.10.7"}, nil); !strings.Contains(errs.ToAggregate().Error(), `must not have bits set beyond the prefix length`) {
		t.Errorf("a network that is an address: %v", errs)
	}
}
