package server_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv"
)

// TestWatchesDoNotHoldUpAStop: otherwise each `kubectl get -w` would, for a minute.
func TestWatchesDoNotHoldUpAStop(t *testing.T) {
	env := testenv.Start(t)
	watch, err := env.Client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		env.Stop()
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Error("the server did not stop while somebody watched")
		<-stopped
	}
}
