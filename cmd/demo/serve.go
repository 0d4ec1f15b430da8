package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// serve listens until the context ends and then closes within a second.
func serve(ctx context.Context, port int, handler http.Handler, out io.Writer) error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s listens on %s\n", node(), os.Getenv("VERSION"), listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// httpServer says in every answer who gave it and logs one line per request.
func httpServer(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	port := flags.Int("port", 8080, "port to listen on")
	udp := flags.Bool("udp", false, "answer datagrams at the same port too")
	unready := flags.String("unready-file", "/tmp/unready", "/ready answers 503 while this file exists")
	if err := flags.Parse(args); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(*unready); err == nil {
			http.Error(w, "not ready: "+*unready+" exists", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(out, "%s %s from %s %s\n", r.Method, r.URL.Path, r.RemoteAddr, strings.TrimSpace(string(body)))
		fmt.Fprint(w, whoAnswers())
	})
	if *udp {
		stop, err := serveDatagrams(*port)
		if err != nil {
			return err
		}
		defer stop()
	}
	return serve(ctx, *port, mux, out)
}

func whoAnswers() string {
	return fmt.Sprintf("pod=%s node=%s version=%s\n", pod(), node(), os.Getenv("VERSION"))
}

// pod names the pod: the manifest's POD_NAME, else the host name, which is the
// pod's unless it uses the host's network.
func pod() string {
	if p := os.Getenv("POD_NAME"); p != "" {
		return p
	}
	name, _ := os.Hostname()
	return name
}

// metricsAgent serves a few figures of the node in Prometheus' text format.
func metricsAgent(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("metrics-agent", flag.ContinueOnError)
	port := flags.Int("port", 9100, "port to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var scrapes atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		load, _ := os.ReadFile("/proc/loadavg")
		memory, _ := os.ReadFile("/proc/meminfo")
		_, _ = w.Write(metrics(node(), string(load), string(memory), scrapes.Add(1)))
	})
	return serve(ctx, *port, mux, out)
}

// metrics renders the figures from the texts of /proc/loadavg and /proc/meminfo.
func metrics(node, load, memory string, scrapes int64) []byte {
	var b bytes.Buffer
	gauge := func(name, help string, value float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s{node=%q} %g\n", name, help, name, name, node, value)
	}
	if fields := strings.Fields(load); len(fields) > 0 {
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
			gauge("demo_node_load1", "Load average over one minute.", v)
		}
	}
	for line := range strings.Lines(memory) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			gauge("demo_node_memory_total_bytes", "Memory of the node.", kib*1024)
		case "MemAvailable:":
			gauge("demo_node_memory_available_bytes", "Memory that programs can still get.", kib*1024)
		}
	}
	fmt.Fprintf(
		&b,
		"# HELP demo_scrapes_total Times this page was read.\n# TYPE demo_scrapes_total "+
			"counter\ndemo_scrapes_total{node=%q} %d\n",
		node, scrapes,
	)
	return b.Bytes()
}

// post sends a line to a URL until it is stopped; a failed post is a line of
// the log, and the next one is tried all the same.
func post(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("post", flag.ContinueOnError)
	url := flags.String("url", "", "where to post")
	every := flags.Duration("every", 5*time.Second, "how often")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *url == "" {
		return errors.New("--url is required")
	}
	client := &http.Client{Timeout: 5 * time.Second}
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		answer, err := postOnce(ctx, client, *url, fmt.Sprintf("report %d of %s", n, node()))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			fmt.Fprintf(out, "post %d: %v\n", n, err)
		default:
			fmt.Fprintf(out, "post %d: %s\n", n, answer)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func postOnce(ctx context.Context, client *http.Client, url, text string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return "", err
	}
	// Each post finds its way again, as one of another program would.
	request.Close = true
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return response.Status + " " + strings.TrimSpace(string(body)), err
}
