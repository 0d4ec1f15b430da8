package csi

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
)

// A full disk must not cost the note without which a mounted volume can never be given back.
func TestAFullDiskLeavesTheNoteOfAVolume(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, dataFile)
	data := volumeData{DriverName: name, VolumeHandle: "one"}
	if err := write(dir, data); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, newFile)); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, data); err != nil {
		t.Errorf("what is written already needs no room: %v", err)
	}
	data.VolumeHandle = "two"
	if err := write(dir, data); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("the note is gone: %v, %v", info, err) // what is in its place has no end
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(was) {
		t.Errorf("the note is %q, %v, and was %q", now, err, was)
	}
	if err := write(dir, data); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) == string(was) {
		t.Errorf("with room again the note is %q, %v", now, err)
	}
}

func TestAHalfWrittenNoteGoesToo(t *testing.T) {
	for _, what := range []string{"before the driver was asked", "after"} {
		d, driver := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral)), &testDriver{id: "id-1"}
		if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
		pod := podWith("one")
		dir := filepath.Dir(d.Path(pod.UID, "v"))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if what == "after" {
			if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, newFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.TearDown(t.Context(), pod.UID); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if left, err := os.ReadDir(d.cfg.PodsDir); err != nil || len(left) != 0 {
			t.Errorf("%s: left are %v, %v", what, left, err)
		}
	}
}
