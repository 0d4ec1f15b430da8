package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

// lateWriter is a control plane in which the last write with the old key lands after
// the first question and before the second, whatever is asked.
type lateWriter struct {
	file, hash string
	asked      int
}

func (l *lateWriter) landed() bool {
	l.asked++
	return l.asked > 1
}

// Status implements Servers.
func (l *lateWriter) Status(context.Context) (Status, error) {
	stored := map[string]int{SecretBox + "key-2": 1}
	if l.landed() {
		stored[SecretBox+"key-1"] = 1
	}
	return Status{File: l.file, Hash: l.hash, Resources: []Resource{{Name: "secrets", Writes: SecretBox + "key-2", Stored: stored}}}, nil
}

// Following implements Servers.
func (l *lateWriter) Following(context.Context, string) ([]plan.Server, error) {
	return []plan.Server{{Name: "a", Follows: true, Settled: l.landed()}}, nil
}

// Rewrite implements Servers.
func (l *lateWriter) Rewrite(context.Context) (Rewritten, error) { return Rewritten{Rewritten: 1}, nil }

// The old key stays as long as something may be stored with it that was written after
// the counting began.
func TestKeyOfAWriteThatLandsLateIsKept(t *testing.T) {
	dir := t.TempDir()
	content, err := Write(File(dir), keysOf(t, "key-2", "key-1"))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	c := Change{DataDir: dir, Out: io.Discard, Patience: time.Minute, Servers: &lateWriter{file: File(dir), hash: Hash(content)},
		After: func(k plan.Kind) error {
			if k != plan.Rewrite {
				t.Errorf("the next step is %s, while a Secret is stored with the old key", k)
			}
			return enough
		}}
	if err := c.Run(t.Context()); !errors.Is(err, enough) {
		t.Error(err)
	}
}

// A server that does not answer in time is asked again, as long as the patience lasts.
func TestABusyServerIsAskedAgain(t *testing.T) {
	for _, status := range []int{http.StatusGatewayTimeout, http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if asked <= 2 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","code":%d,"reason":%q}`, status, reasons[status])
				return
			}
			_, _ = io.WriteString(w, `{"rewritten":2}`) // a test that fails says what came of it
		}))
		t.Cleanup(s.Close)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := RewriteAll(t.Context(), AskServers(client, time.Now), &out, time.Minute); err != nil || asked != 3 {
			t.Errorf("%d: asked %d times, %v", status, asked, err)
		}
		if said := out.String(); strings.Count(said, "Waiting: have objects written again: the server is busy") != 1 || !strings.HasSuffix(said, "Rewritten: 2; left: 0.\n") {
			t.Errorf("%d: it said %q", status, said)
		}
		asked = -1000
		if err := RewriteAll(t.Context(), AskServers(client, time.Now), io.Discard, time.Nanosecond); err == nil || !strings.HasSuffix(err.Error(), "run this again, it goes on where it was") {
			t.Errorf("%d: the patience is over: %v", status, err)
		}
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusGatewayTimeout: metav1.StatusReasonTimeout, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
}

// stalled is a control plane whose database stalls when objects are to be written again.
type stalled struct {
	lateWriter
	stalls int
}

// Rewrite implements Servers.
func (s *stalled) Rewrite(context.Context) (Rewritten, error) {
	s.stalls--
	if s.stalls >= 0 {
		return Rewritten{}, errBusy
	}
	return Rewritten{Rewritten: 1}, nil
}

// A change of keys goes on when a server did not answer in time.
func TestAChangeOutlastsAStall(t *testing.T) {
	dir := t.TempDir()
	content, err := Write(File(dir), keysOf(t, "key-2", "key-1"))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	servers := &stalled{lateWriter{file: File(dir), hash: Hash(content), asked: 1}, 2}
	c := Change{DataDir: dir, Out: io.Discard, Patience: time.Minute, Servers: servers, After: func(plan.Kind) error { return enough }}
	if err := c.Run(t.Context()); !errors.Is(err, enough) || servers.stalls >= 0 {
		t.Errorf("it ended with %v, %d stalls were left", err, servers.stalls)
	}
}
