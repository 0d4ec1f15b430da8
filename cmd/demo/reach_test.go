package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestReach asks a server over both protocols, one that is not there, and a name.
func TestReach(t *testing.T) {
	t.Setenv("POD_NAME", "here")
	t.Setenv("NODE_NAME", "n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, whoAnswers()) }))
	defer server.Close()
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.LocalAddr().(*net.UDPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	stop, err := serveDatagrams(port)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	list := strings.Join([]string{
		"page\t" + server.URL + "/\tpod=here node=n ",
		"wrong page\t" + server.URL + "/\tpod=there ",
		// Every address of 127.0.0.0/8 is this machine's, and the answer comes from the one that was asked.
		fmt.Sprintf("datagram\tudp://127.0.0.9:%d\tpod=here node=n ", port),
		"nobody\thttp://127.0.0.1:1/\trefused",
		"name\ta:127.0.0.1\t^127\\.0\\.0\\.1$",
	}, "\n")
	var out strings.Builder
	if err := reachAll(t.Context(), strings.NewReader(list), &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`\Awrong page\thttp://[0-9.:]+/ said "pod=here node=n version=", want "pod=there "\nreached 4 of 5\n\z`)
	if !want.MatchString(out.String()) {
		t.Errorf("printed\n%s", &out)
	}
	if err := reachAll(t.Context(), strings.NewReader("one field"), &out); err == nil || !strings.Contains(err.Error(), `"one field"`) {
		t.Errorf("a line that is none: %v", err)
	}
}
