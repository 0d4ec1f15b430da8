package stolen

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func amount(s string) resource.Quantity { return resource.MustParse(s) }

// patchOf is what a PATCH says.
func (y *yard) patchOf(t *testing.T, at target, about string) object {
	t.Helper()
	note := object{"metadata": object{"annotations": object{"yard.example.com/x": "y"}}}
	switch at.resource {
	case "nodes":
		return nodePatch(about, note)
	case "pods":
		return podPatch(about)
	case "leases":
		return object{"spec": object{"holderIdentity": "yard-thief"}}
	case "events":
		return object{"message": "changed"}
	}
	return note
}

func nodePatch(about string, note object) object {
	status := func(key string, value any) object { return object{"status": object{key: value}} }
	spec := func(key string, value any) object { return object{"spec": object{key: value}} }
	_, what, _ := strings.Cut(about, "patch ")
	switch what {
	case "address API name":
		return status("addresses", []any{object{"type": "Hostname", "address": "kubernetes.default.svc"}})
	case "addresses loopback":
		return status("addresses", []any{object{"type": "InternalIP", "address": "127.0.0.1"}})
	case "annotation away":
		return object{"metadata": object{"annotations": nil}}
	case "capacity":
		return status("capacity", object{"cpu": "1000"})
	case "capacity negative":
		return status("capacity", object{"cpu": "-1"})
	case "capacity odd":
		return status("capacity", object{"example.com/x": "1"})
	case "config":
		return status("config", object{"error": "x"})
	case "configSource":
		return spec("configSource", object{"configMap": object{"namespace": "yard-a", "name": "cm-other", "kubeletConfigKey": "k"}})
	case "huge":
		return object{"metadata": object{"annotations": object{"a": strings.Repeat("a", 300000)}}}
	case "images many":
		images := []any{}
		for i := range 500 {
			images = append(images, object{"names": []any{fmt.Sprint("i", i)}, "sizeBytes": 1})
		}
		return status("images", images)
	case "kubelet port":
		return status("daemonEndpoints", object{"kubeletEndpoint": object{"Port": 22}})
	case "nodeInfo":
		return status("nodeInfo", object{"kubeletVersion": "v9"})
	case "nothing":
		return object{}
	case "owner":
		return object{"metadata": object{"ownerReferences": []any{object{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}}}}
	case "podCIDR":
		return spec("podCIDR", "10.88.0.0/24")
	case "podCIDRs of one family":
		return object{"spec": object{"podCIDR": "10.88.0.0/24", "podCIDRs": []any{"10.88.0.0/24", "10.89.0.0/24"}}}
	case "providerID":
		return spec("providerID", "x://y")
	case "taints away":
		return spec("taints", nil)
	case "taints empty":
		return spec("taints", []any{})
	case "uid":
		return object{"metadata": object{"uid": "11111111-1111-1111-1111-111111111111"}}
	case "unschedulable":
		return spec("unschedulable", true)
	case "volumesAttached":
		return status("volumesAttached", []any{object{"name": "x", "devicePath": "/x"}})
	}
	if key, ok := strings.CutPrefix(about, "remove label "); ok {
		return object{"metadata": object{"labels": object{key: nil}}}
	}
	return note
}

func podPatch(about string) object {
	metadata := func(key string, value any) object { return object{"metadata": object{key: value}} }
	status := func(key string, value any) object { return object{"status": object{key: value}} }
	_, what, ok := strings.Cut(about, "status: ")
	if !ok {
		return status("phase", "Running")
	}
	owner := []any{object{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "11111111-1111-1111-1111-111111111111"}}
	switch what {
	case "annotation mirror add", "annotation mirror change":
		return metadata("annotations", object{"kubernetes.io/config.mirror": "other"})
	case "annotation mirror remove":
		return metadata("annotations", object{"kubernetes.io/config.mirror": nil})
	case "annotation scheduling":
		return metadata("annotations", object{"scheduler.alpha.kubernetes.io/x": "y"})
	case "eph status":
		return status("ephemeralContainerStatuses", []any{})
	case "hostIP bad":
		return status("hostIP", "x")
	case "label add":
		return metadata("labels", object{"yard": "x"})
	case "label change":
		return metadata("labels", object{"app": "x"})
	case "namespace":
		return metadata("namespace", "yard-b")
	case "nominated bad":
		return status("nominatedNodeName", "A_B")
	case "nothing":
		return object{}
	case "owner add", "owner missing object":
		return metadata("ownerReferences", owner)
	case "podIP":
		return object{"status": object{"podIP": "10.1.0.1", "podIPs": []any{object{"ip": "10.1.0.1"}}}}
	case "podIP link local":
		return object{"status": object{"podIP": "169.254.169.254", "podIPs": []any{object{"ip": "169.254.169.254"}}}}
	case "podIP bad form":
		return object{"status": object{"podIP": "010.001.000.001", "podIPs": []any{object{"ip": "010.001.000.001"}}}}
	}
	return status("phase", "Running")
}
