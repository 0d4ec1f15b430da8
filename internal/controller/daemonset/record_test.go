package daemonset

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"
)

// What is written while the controller works is what it decided, and from what.
func TestDecisionsAreRecorded(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	var out bytes.Buffer
	c, err := New(Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(1000), Record: &out})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"node\n{\"Name\":\"n1\"", "daemonset\n{", " create logs/n1 rev=", "done\n{\"Action\":", "pod\n{",
		" status logs gen=1 desired=1 current=1 ready=1 updated=1 available=1"} {
		if !strings.Contains(out.String(), step) {
			t.Errorf("%q is not in\n%s", step, out.String())
		}
	}
}
