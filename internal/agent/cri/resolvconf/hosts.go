package resolvconf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// How the file begins: programs look for these words to know whether they may change it.
const (
	hostsHeader       = "# Kubernetes-managed hosts file.\n"
	hostsHeaderOnHost = "# Kubernetes-managed hosts file (host network).\n"
)

// WriteHosts writes the pod's /etc/hosts into the folder of its own files, and returns where. A pod on the node's
// network gets the node's file, with the pod's aliases added.
func (d DNS) WriteHosts(folder string, pod *corev1.Pod, podIPs []string) (string, error) {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		node, err := os.ReadFile("/etc/hosts")
		if err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("read the node's hosts file: %w", err)
		}
		b.WriteString(hostsHeaderOnHost)
		b.Write(node)
	} else {
		b.WriteString(hostsHeader)
		b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		short := d.Hostname(pod)
		for _, ip := range podIPs {
			if full := d.fullName(pod, short); full != "" && full != short {
				fmt.Fprintf(&b, "%s\t%s\t%s\n", ip, full, short)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, short)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	path := filepath.Join(folder, "etc-hosts")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("make the folder of pod %s: %w", pod.Name, err)
	}
	if err := writeInPlace(path, b.String()); err != nil {
		return "", fmt.Errorf("write the hosts file of pod %s: %w", pod.Name, err)
	}
	return path, nil
}

// writeInPlace makes text the content of a file, which containers that run already have mounted: it cannot be replaced
// by another one.
// If there is no room for the text, the file is as it was.
func writeInPlace(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := io.ReadAll(f)
	if err != nil || string(before) == text {
		return err
	}
	if err := overwrite(f, []byte(text)); err != nil {
		return errors.Join(err, overwrite(f, before))
	}
	return nil
}

// overwrite writes first and cuts afterwards: what a file has on the disk is enough for as much again.
func overwrite(f *os.File, data []byte) error {
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(data)))
}
