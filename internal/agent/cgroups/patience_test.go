package cgroups

import (
	"fmt"
	"strings"
	"testing"
	"time"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// What systemd does not answer to ends with an error that says what was tried; the same cgroup is had when it answers again.
func TestSystemdThatHangs(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	if err := unix.Mount("tmpfs", realMount, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	library.TestMode = true
	const all = "cpuset cpu io memory hugetlb pids"
	write(t, realMount+"/cgroup.controllers", all)
	c := newGroups(t, Config{Driver: Systemd, Root: "/every/n", Mount: realMount})
	c.booted, c.sizes = func() bool { return true }, nil
	g, units := ofClass(corev1.PodQOSBurstable), startBus(t)
	for _, above := range []group{nil, allPods(), g} {
		write(t, c.in("", above)+"/cgroup.controllers", all)
	}
	if err := c.apply(g, limits{}.resources()); err != nil {
		t.Fatal(err) // the library has its connection
	}
	again := units.hang(t)
	c.systemd.patience = 50 * time.Millisecond
	for _, want := range []string{"make the cgroup " + c.layout.path(g) + ": systemd did not answer", "systemd has not yet answered to: make the cgroup"} {
		if err := c.apply(g, limits{}.resources()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	again()
	c.systemd.patience = patience
	if err := c.apply(g, limits{}.resources()); err != nil {
		t.Errorf("systemd answers again: %v", err)
	}
}

// However many cgroups are asked for, few questions are open.
func TestQuestionsToSystemdAreBounded(t *testing.T) {
	a, block := asking{patience: time.Millisecond}, make(chan struct{})
	asked := make(chan struct{}, 1000)
	for i := range 3 * unanswered {
		if err := a.ask("make", fmt.Sprint("cgroup ", i), func() error { asked <- struct{}{}; <-block; return nil }); err == nil {
			t.Fatal("no error")
		}
	}
	close(block)
	a.patience = patience
	if err := a.ask("make", "another", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if n := len(asked); n > unanswered {
		t.Errorf("%d questions, want %d", n, unanswered)
	}
}
