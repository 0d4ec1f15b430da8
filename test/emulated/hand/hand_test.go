package hand

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A machine does what it is told, and says when it cannot. It keeps the program running that it is to keep.
func TestServe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { _ = Serve(listener) }() // until it is closed
	ask := func(method, path, words string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, strings.NewReader(words))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, words string
		code                int
		answer              string
	}{
		{"POST", "/run", `["/bin/sh", "-c", "echo out; echo err >&2"]`, 200, "out\nerr\n"},
		{"POST", "/run", `["/bin/sh", "-c", "echo bad; exit 3"]`, 500, "bad: exit status 3\n"},
		{"POST", "/run", `[]`, 500, "nothing was said"},
		{"POST", "/run", `nonsense`, 500, "invalid character"},
		{"GET", "/file?path=" + url.QueryEscape(file), "", 200, "content"},
		{"POST", "/clock?by=nonsense", "", 500, "invalid duration"},
	} {
		if code, answer := ask(c.method, c.path, c.words); code != c.code || !strings.Contains(answer, c.answer) {
			t.Errorf("%s %s %s: %d %q, want %d %q", c.method, c.path, c.words, code, answer, c.code, c.answer)
		}
	}
	ask("POST", "/keep", `["/bin/sh", "-c", "echo $$; exit 1"]`)
	said := ""
	for end := time.Now().Add(time.Minute); strings.Count(said, "it has ended") < 2; _, said = ask("GET", "/said", "") {
		if time.Now().After(end) {
			t.Fatalf("what is to be kept running said %q", said)
		}
	}
}
