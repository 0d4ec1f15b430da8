package csi

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// problems fails the test unless the errors are exactly these.
func problems(t *testing.T, what string, errs field.ErrorList, want ...string) {
	t.Helper()
	got := make([]string, len(errs))
	for i, err := range errs {
		got[i] = err.Error()
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDriver(t *testing.T) {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "Secrets-store.csi.k8s.io"}}
	Default(&d.Spec)
	if !*d.Spec.AttachRequired || *d.Spec.PodInfoOnMount || len(d.Spec.VolumeLifecycleModes) != 1 || d.Spec.VolumeLifecycleModes[0] != storagev1.VolumeLifecyclePersistent {
		t.Errorf("a driver that says nothing of itself is %+v", d.Spec)
	}
	problems(t, "defaults", ValidateDriver(d))
	bad := d.DeepCopy()
	bad.Name = "a_b"
	bad.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{"For ever"}
	bad.Spec.FSGroupPolicy = ptr.To(storagev1.FSGroupPolicy("Maybe"))
	bad.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "a"}, {Audience: "a"},
		{Audience: "b", ExpirationSeconds: ptr.To[int64](599)}, {Audience: "c", ExpirationSeconds: ptr.To[int64](1<<32 + 1)}}
	bad.Spec.NodeAllocatableUpdatePeriodSeconds = ptr.To[int64](9)
	problems(t, "all wrong", ValidateDriver(bad),
		`metadata.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		`spec.fsGroupPolicy: Unsupported value: "Maybe": supported values: "File", "None", "ReadWriteOnceWithFSType"`,
		`spec.tokenRequests[1].audience: Duplicate value: "a"`,
		`spec.tokenRequests[2].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`,
		`spec.tokenRequests[3].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`,
		`spec.volumeLifecycleModes: Unsupported value: "For ever": supported values: "Persistent", "Ephemeral"`,
		`spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds`)
	alone := d.DeepCopy()
	alone.Spec.ServiceAccountTokenInSecrets = ptr.To(true)
	problems(t, "tokens in secrets, and no tokens", ValidateDriver(alone),
		`spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified`)
	alone.Spec.ServiceAccountTokenInSecrets = nil
	if len(warnings(alone)) != 0 {
		t.Errorf("a driver without tokens is warned of %q", warnings(alone))
	}
	alone.Spec.TokenRequests = bad.Spec.TokenRequests[:1]
	if len(warnings(alone)) != 1 {
		t.Errorf("a driver that gets tokens in the clear is warned of %q", warnings(alone))
	}
	other := d.DeepCopy()
	other.Spec.AttachRequired = ptr.To(false)
	problems(t, "a driver that no longer attaches", validateDriverStays(&other.Spec, &d.Spec), `spec.attachedRequired: Invalid value: false: field is immutable`)
}

func TestNode(t *testing.T) {
	node := func(drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
		return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	}
	good := storagev1.CSINodeDriver{Name: "a.example.com", NodeID: "n", TopologyKeys: []string{"example.com/zone"}}
	problems(t, "good", ValidateNode(node(good), nil))
	problems(t, "unchanged", ValidateNode(node(good), node(good)))
	problems(t, "gone", ValidateNode(node(), node(good)))
	moved := good
	moved.NodeID = "m"
	problems(t, "another ID", ValidateNode(node(moved), node(good)), `spec.drivers: Invalid value: "a.example.com": field is immutable`)
	problems(t, "all wrong", ValidateNode(node(good, storagev1.CSINodeDriver{Name: "a.example.com", TopologyKeys: []string{"x", "x"},
		Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](-1)}}, storagev1.CSINodeDriver{NodeID: strings.Repeat("x", 257)}), nil),
		`spec.drivers[1].name: Duplicate value: "a.example.com"`,
		`spec.drivers[1].nodeID: Required value`,
		`spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0`,
		`spec.drivers[1]: Duplicate value: "x"`,
		`spec.drivers[2].name: Required value`,
		`spec.drivers[2].nodeID: Invalid value: "`+strings.Repeat("x", 257)+`": must be 256 characters or less`)
}
