package probes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// newTransport is for requests to containers: a connection each, no proxy, and any certificate, because a pod's is its
// own affair.
func newTransport() http.RoundTripper {
	return &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10},
		DialContext:        newDialer(0).DialContext,
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}

// get requests a URL; 200 to 399 is success. It follows redirects on the same host, and counts one to another host as a
// success with a warning.
func (c checker) get(ctx context.Context, action *corev1.HTTPGetAction, host string, port int,
	timeout time.Duration) (outcome, error) {
	request, err := newRequest(ctx, action, host, port)
	if err != nil {
		return outcome{}, err
	}
	c.addHeaders(request, action.HTTPHeaders)
	client := &http.Client{Transport: c.transport, Timeout: timeout, CheckRedirect: sameHost}
	response, err := client.Do(request)
	if err != nil {
		return outcome{output: err.Error()}, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	if err != nil {
		return outcome{output: err.Error()}, nil
	}
	switch {
	case response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest:
		return outcome{output: fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode)}, nil
	case response.StatusCode >= http.StatusMultipleChoices:
		return outcome{
			success: true,
			warning: true,
			output:  fmt.Sprintf("Probe terminated redirects, Response body: %v", string(body)),
		}, nil
	}
	return outcome{success: true, output: string(body)}, nil
}

func newRequest(ctx context.Context, action *corev1.HTTPGetAction, host string, port int) (*http.Request, error) {
	target, err := url.Parse(action.Path)
	if err != nil {
		// Not a URL's path, but servers may know it all the same.
		target = &url.URL{Path: action.Path}
	}
	target.Scheme = strings.ToLower(string(action.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = address(host, port)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make probe request: %w", err)
	}
	return request, nil
}

// addHeaders sets the probe's headers. User-Agent and Accept have defaults; given and empty, they are not sent.
func (c checker) addHeaders(request *http.Request, headers []corev1.HTTPHeader) {
	for _, header := range headers {
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
			continue
		}
		request.Header.Add(header.Name, header.Value)
	}
	for name, value := range map[string]string{"User-Agent": c.userAgent, "Accept": "*/*"} {
		given, ok := request.Header[name]
		switch {
		case !ok:
			request.Header.Set(name, value)
		case len(given) == 1 && given[0] == "" && name == "Accept":
			request.Header.Del(name)
		}
	}
}

// sameHost follows redirects as long as they stay on the first request's host.
func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	// A name that the probe gave for the first request counts for the next ones, too.
	if via[0].Host != "" && request.URL.Host == via[0].URL.Host {
		request.Host = via[0].Host
	}
	return nil
}
