package tokencleaner

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func token(name, expiration string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Type: "bootstrap.kubernetes.io/token", Data: map[string][]byte{}}
	if expiration != "" {
		s.Data["expiration"] = []byte(expiration)
	}
	return s
}

func TestExpired(t *testing.T) {
	other := token("other", "2026-08-01T11:00:00Z")
	other.Type = corev1.SecretTypeOpaque
	for text, c := range map[string]struct {
		secret *corev1.Secret
		want   bool
	}{
		"ended":           {token("a", "2026-08-01T12:00:00Z"), true},
		"in another zone": {token("a", "2026-08-01T13:59:59+02:00"), true},
		"not yet":         {token("a", "2026-08-01T12:00:01Z"), false},
		"without end":     {token("a", ""), false},
		"unreadable":      {token("a", "soon"), false},
		"no token":        {other, false},
	} {
		if got := expired(c.secret, noon); got != c.want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestEndedTokensGoWhenTheirTimeComes(t *testing.T) {
	client := fake.NewClientset(token("ended", "2026-08-01T11:00:00Z"), token("ends-soon", "2026-08-01T12:00:30Z"), token("stays", ""))
	clock := testingclock.NewFakeClock(noon)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- (&cleaner{Config{Client: client, Clock: clock}}).Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	left := func(want ...string) {
		t.Helper()
		var names []string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			list, err := client.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			names = nil
			for _, s := range list.Items {
				names = append(names, s.Name)
			}
			if slices.Equal(names, want) && clock.HasWaiters() {
				return
			}
		}
		t.Fatalf("tokens left: %v, want %v", names, want)
	}
	left("ends-soon", "stays")
	clock.Step(period)
	left("stays")
}
