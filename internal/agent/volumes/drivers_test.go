package volumes

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeDrivers makes nothing, and calls setUp if there is one.
type fakeDrivers struct {
	setUp func(ctx context.Context, pod *corev1.Pod) error
}

func (d *fakeDrivers) SetUp(ctx context.Context, pod *corev1.Pod, _ *corev1.Volume) error {
	if d.setUp == nil {
		return nil
	}
	return d.setUp(ctx, pod)
}

func (d *fakeDrivers) Path(podUID types.UID, volume string) string {
	return filepath.Join("/drivers", string(podUID), volume)
}

func (d *fakeDrivers) TearDown(context.Context, types.UID) error { return nil }

func driverVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "storage.example.com"}}}
}

func TestReadOnlyVolumeOfADriver(t *testing.T) {
	m, _ := newTest(t)
	m.cfg.Drivers = &fakeDrivers{}
	for _, test := range []struct {
		volume      *bool
		mount, want bool
	}{
		{nil, false, false}, {nil, true, true}, {ptr(false), false, false}, {ptr(false), true, true}, {ptr(true), false, true}, {ptr(true), true, true},
	} {
		volume := driverVolume("v")
		volume.CSI.ReadOnly = test.volume
		got := mountOf(t, m, podWith(volume), corev1.VolumeMount{MountPath: "/v", ReadOnly: test.mount})
		if got.ReadOnly != test.want || got.HostPath != "/drivers/uid-1/v" {
			t.Errorf("%+v: the mount is %+v", test, got)
		}
	}
}
