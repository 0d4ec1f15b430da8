package volumes

import (
	"context"
	"errors"
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

// A driver that hangs keeps nothing from other pods, nor is it called again meanwhile.
func TestAHangingDriverHoldsUpItsOwnPodOnly(t *testing.T) {
	m, objects := newTest(t)
	hang, entered, calls := make(chan struct{}), make(chan struct{}, 10), 0
	drivers := &fakeDrivers{}
	m.cfg.Drivers = drivers
	var told []string
	m.cfg.OnRefreshError = func(pod *corev1.Pod, err error) { told = append(told, pod.Name+": "+err.Error()) }
	objects.setConfigMap("c", map[string]string{"a": "1"})
	bound := podWith(driverVolume("d"))
	setUp(t, m, bound)
	var free []*corev1.Pod
	for _, uid := range []types.UID{"uid-2", "uid-3", "uid-4", "uid-5"} { // pods are refreshed in any order
		pod := podWith(configMapVolume("c"))
		pod.UID = uid
		setUp(t, m, pod)
		free = append(free, pod)
	}
	drivers.setUp = func(ctx context.Context, _ *corev1.Pod) error {
		calls++
		entered <- struct{}{}
		select {
		case <-hang:
			return errors.New("too late")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, a := range []string{"2", "3"} {
		objects.setConfigMap("c", map[string]string{"a": a})
		m.refresh(t.Context())
		for _, pod := range free {
			wantShown(t, hostPath(t, m, pod, corev1.VolumeMount{}), "a="+a)
		}
	}
	<-entered
	close(hang)
	m.refreshing.Wait()
	if want := `p: MountVolume.SetUp failed for volume "d" : too late`; calls != 1 || len(told) != 1 || told[0] != want {
		t.Errorf("the driver is called %d times, told is %q", calls, told)
	}
	m.refresh(t.Context())
	m.refreshing.Wait()
	if calls != 2 {
		t.Errorf("the driver is called %d times in the end, want 2", calls)
	}
}
