package lease

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestRenewed(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	at := func(d time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(begin.Add(d))) }
	managed := func(who string, d time.Duration) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: who, Operation: "Update", Time: ptr.To(metav1.NewTime(begin.Add(d))), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	}
	leaseOf := func(change ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, ManagedFields: managed("agent", 0)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("n"), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: at(0)},
		}
		for _, f := range change {
			f(l)
		}
		return l
	}
	later := func(l *coordinationv1.Lease) { l.Spec.RenewTime = at(10 * time.Second) }
	for name, c := range map[string]struct {
		now, next *coordinationv1.Lease
		renewed   bool
	}{
		"renewed":                  {leaseOf(), leaseOf(later), true},
		"renewed by who read it":   {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.ResourceVersion = "" }), true},
		"its kind is spelled out":  {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.Kind, l.APIVersion = "Lease", "coordination.k8s.io/v1" }), true},
		"the manager's time too":   {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.ManagedFields = managed("agent", time.Minute) }), true},
		"another manager":          {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.ManagedFields = managed("other", 0) }), false},
		"no manager any more":      {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.ManagedFields = nil }), false},
		"another holder":           {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("m") }), false},
		"another duration":         {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](41) }), false},
		"another label":            {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"a": "c"} }), false},
		"an owner":                 {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.OwnerReferences = []metav1.OwnerReference{{UID: "x"}} }), false},
		"backwards":                {leaseOf(later), leaseOf(), false},
		"never before":             {leaseOf(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }), leaseOf(later), false},
		"taken back":               {leaseOf(), leaseOf(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }), false},
		"being deleted":            {leaseOf(func(l *coordinationv1.Lease) { l.DeletionTimestamp = ptr.To(metav1.NewTime(begin)) }), leaseOf(later, func(l *coordinationv1.Lease) { l.DeletionTimestamp = ptr.To(metav1.NewTime(begin)) }), false},
		"a lease of an election":   {leaseOf(func(l *coordinationv1.Lease) { l.Namespace = "kube-system" }), leaseOf(later, func(l *coordinationv1.Lease) { l.Namespace = "kube-system" }), false},
		"an election beside nodes": {leaseOf(), leaseOf(later, func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](1) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			before, wanted := c.now.DeepCopy(), c.next.DeepCopy()
			got := Renewed(c.now, c.next)
			if (got != nil) != c.renewed {
				t.Fatalf("it is a renewal: %v, want %v", got != nil, c.renewed)
			}
			if got != nil {
				if !got.Spec.RenewTime.Time.Equal(wanted.Spec.RenewTime.Time) || !got.ManagedFields[0].Time.Equal(wanted.ManagedFields[0].Time) || got.ResourceVersion != "7" || got.Kind != "" {
					t.Errorf("it becomes %+v", got)
				}
				*c.next.Spec.RenewTime, *c.next.ManagedFields[0].Time = metav1.MicroTime{}, metav1.Time{}
				if got.Spec.RenewTime.IsZero() || got.ManagedFields[0].Time.IsZero() {
					t.Error("it shares a time with what was written")
				}
			}
			if before.String() != c.now.String() {
				t.Error("what was there is changed")
			}
		})
	}
	now := leaseOf()
	if Renewed(now, leaseOf()) != now {
		t.Error("a write that changes nothing makes something new")
	}
}
