package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/apiserver/alike"
)

// Renewable says whether a lease is one that a node renews.
func Renewable(now *coordinationv1.Lease) bool {
	return now.Namespace == corev1.NamespaceNodeLease && now.DeletionTimestamp == nil && now.Spec.RenewTime != nil
}

// Renewed returns now as it is after a write that makes it next, if now is Renewable and
// next differs only in when it was renewed, which is not earlier; else nil. If next does
// not differ it returns now. The result shares nothing with next.
func Renewed(now, next *coordinationv1.Lease) *coordinationv1.Lease {
	before, after := now.Spec.RenewTime, next.Spec.RenewTime
	if !Renewable(now) || after == nil {
		return nil
	}
	at := metav1.NewMicroTime(after.Truncate(time.Microsecond).Local()) // as it is stored
	if at.Time.Before(before.Time) {
		return nil
	}
	same := *next
	same.Spec.RenewTime = before
	same.TypeMeta, same.ResourceVersion = now.TypeMeta, now.ResourceVersion
	same.ManagedFields = now.ManagedFields
	if !alike.Values(&same, now) || !sameManagers(now.ManagedFields, next.ManagedFields) {
		return nil
	}
	if at.Time.Equal(before.Time) {
		return now
	}
	out := *now
	out.Spec.RenewTime = &at
	out.ManagedFields = timed(now.ManagedFields, next.ManagedFields)
	return &out
}

// sameManagers reports whether both say the same but for the times.
func sameManagers(now, next []metav1.ManagedFieldsEntry) bool {
	if len(now) != len(next) {
		return false
	}
	for i := range next {
		same := next[i]
		same.Time = now[i].Time
		if !alike.Values(same, now[i]) {
			return false
		}
	}
	return true
}

// timed returns who manages what as it is, at the times when it was renewed.
func timed(now, next []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if len(now) == 0 {
		return now
	}
	out := append([]metav1.ManagedFieldsEntry(nil), now...)
	for i := range out {
		out[i].Time = next[i].Time.DeepCopy()
	}
	return out
}
