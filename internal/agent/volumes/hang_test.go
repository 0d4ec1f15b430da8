package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// deadServer is another machine that is away: whatever asks its file systems waits, whatever its context says, until it
// is back.
type deadServer struct {
	back  chan struct{}
	asked map[string]int
}

// wait asks it.
func (d *deadServer) wait(what string) error {
	d.asked[what]++
	<-d.back
	return nil
}

// SetUp, Path and TearDown implement Drivers.
func (d *deadServer) SetUp(_ context.Context, _ *corev1.Pod, v *corev1.Volume) error {
	return d.wait("mount " + v.Name)
}
func (d *deadServer) Path(uid types.UID, volume string) string {
	return "/drivers/" + string(uid) + "/" + volume
}
func (d *deadServer) TearDown(context.Context, types.UID) error {
	return d.wait("unmount")
}

// hanging returns a manager in the bubble of the test, and the machine whose folder is at /dead.
func hanging(t *testing.T, objects Objects) (*Manager, *deadServer) {
	t.Helper()
	server := &deadServer{back: make(chan struct{}), asked: map[string]int{}}
	m := New(Config{RootDir: t.TempDir(), Objects: objects, Drivers: server, Clock: clock.RealClock{}})
	m.foreign.hostPath = func(source *corev1.HostPathVolumeSource) error {
		if strings.HasPrefix(source.Path, "/dead") {
			return server.wait(source.Path)
		}
		return setUpHostPath(source)
	}
	m.foreign.bind = func(volume, _, _ string) error {
		if strings.HasPrefix(volume, "/dead") {
			return server.wait("bind " + volume)
		}
		return nil
	}
	m.foreign.unmount = func(dir string) error { return nil }
	return m, server
}

func deadPath() corev1.Volume {
	directory := corev1.HostPathDirectory
	return corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/dead/data", Type: &directory}}}
}

// A folder of another machine that is away, and a driver whose mount hangs, hold up neither other pods, nor other
// volumes of the pod, nor the end of the agent. The pod is told after two minutes, the file system is asked once, and
// what it answers in the end counts.
func TestAMountThatHangs(t *testing.T) {
	for name, volume := range map[string]corev1.Volume{
		"path /dead/data": deadPath(), "driver storage.example.com of volume csi": driverVolume("csi"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, server := hanging(t, &fakeObjects{})
				pod := podWith(volume, corev1.Volume{Name: "other", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
				began := time.Now()
				answer := make(chan error)
				go func() { answer <- m.SetUp(t.Context(), pod) }()
				synctest.Wait()
				other := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
				other.UID = "uid-2"
				setUp(t, m, other)
				if time.Since(began) != 0 {
					t.Errorf("another pod waited for %s", time.Since(began))
				}
				err := <-answer
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("failed for volume %q : %s has had no answer since ", volume.Name, name)) ||
					strings.Contains(err.Error(), `volume "other"`) || time.Since(began) != patience {
					t.Fatalf("after %s the pod is told %v", time.Since(began), err)
				}
				if err := m.SetUp(t.Context(), pod); err == nil || time.Since(began) != patience {
					t.Errorf("the next attempt ends with %v after %s", err, time.Since(began)-patience)
				}
				close(server.back)
				synctest.Wait()
				setUp(t, m, pod)
				for what, times := range server.asked {
					if times != 1 {
						t.Errorf("%s was asked for %d times", what, times)
					}
				}
			})
		})
	}
}

// The agent ends at once, whatever waits for a machine that is away: a start of a pod, a subPath, an unmount, a look
// at what a driver shows.
func TestTheAgentEndsThoughVolumesHang(t *testing.T) {
	for name, begin := range map[string]func(ctx context.Context, m *Manager) error{
		"a mount": func(ctx context.Context, m *Manager) error { return m.SetUp(ctx, podWith(deadPath())) },
		"a subPath": func(ctx context.Context, m *Manager) error {
			volume := deadPath()
			volume.HostPath.Type = nil
			_, err := m.Mounts(ctx, podWith(volume), &corev1.Container{
				Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "nfs", MountPath: "/v", SubPath: "a"}}})
			return err
		},
		"an unmount": func(ctx context.Context, m *Manager) error { return m.TearDown(ctx, "uid-1") },
		"a refresh": func(ctx context.Context, m *Manager) error {
			state := m.state("uid-1")
			state.pod = podWith(driverVolume("csi"))
			_ = m.Run(ctx)
			return errors.New("it has ended")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, server := hanging(t, &fakeObjects{})
				defer close(server.back)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- begin(ctx, m) }()
				time.Sleep(3 * time.Minute / 2)
				synctest.Wait()
				if len(server.asked) != 1 || len(ended) > 0 {
					t.Fatalf("nothing hangs: %v", server.asked)
				}
				began := time.Now()
				cancel()
				if err := <-ended; err == nil || time.Since(began) != 0 {
					t.Errorf("the agent ends after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// A pod whose mount hangs can be deleted, and one whose unmount hangs is told so and is gone once that has ended.
func TestAPodWithAVolumeThatHangsGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, server := hanging(t, &fakeObjects{})
		m.cfg.Drivers = nil
		started := make(chan error, 1)
		go func() { started <- m.SetUp(t.Context(), podWith(deadPath())) }()
		synctest.Wait()
		began := time.Now()
		if err := m.TearDown(t.Context(), "uid-1"); err != nil || time.Since(began) != 0 {
			t.Errorf("it is torn down after %s: %v", time.Since(began), err)
		}
		<-started

		m.cfg.Drivers = server
		if err := m.TearDown(t.Context(), "uid-2"); err == nil ||
			!strings.Contains(err.Error(), "unmounting volumes of drivers has had no answer since") {
			t.Errorf("while the unmount hangs: %v", err)
		}
		close(server.back)
		synctest.Wait()
		if err := m.TearDown(t.Context(), "uid-2"); err != nil || server.asked["unmount"] != 1 {
			t.Errorf("in the end: %v, unmounted %d times", err, server.asked["unmount"])
		}
	})
}
