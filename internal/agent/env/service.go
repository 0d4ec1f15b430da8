package env

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service of the API server; every container learns its address.
const apiService = "kubernetes"

// serviceVars gives the variables that tell a container of namespace where services are: always the API server's, and
// with links those of its own namespace, which win where names are equal. Services without a cluster IP have none.
func serviceVars(services []*corev1.Service, namespace string, links bool) map[string]string {
	vars := map[string]string{}
	var own []*corev1.Service
	for _, service := range services {
		switch {
		case service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone || len(service.Spec.Ports) == 0:
		case links && service.Namespace == namespace:
			own = append(own, service)
		case service.Namespace == metav1.NamespaceDefault && service.Name == apiService:
			addService(vars, service)
		}
	}
	for _, service := range own {
		if namespace != metav1.NamespaceDefault && service.Name == apiService {
			// A namespace's own "kubernetes" replaces the API server's variables as a whole.
			for name := range vars {
				delete(vars, name)
			}
		}
	}
	for _, service := range own {
		addService(vars, service)
	}
	return vars
}

func addService(vars map[string]string, service *corev1.Service) {
	name, host := variableName(service.Name), service.Spec.ClusterIP
	vars[name+"_SERVICE_HOST"] = host
	vars[name+"_SERVICE_PORT"] = strconv.Itoa(int(service.Spec.Ports[0].Port))
	for i, port := range service.Spec.Ports {
		number := strconv.Itoa(int(port.Port))
		if port.Name != "" {
			vars[name+"_SERVICE_PORT_"+variableName(port.Name)] = number
		}
		protocol := string(port.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(host, number)
		if i == 0 {
			vars[name+"_PORT"] = url
		}
		prefix := name + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		vars[prefix] = url
		vars[prefix+"_PROTO"] = strings.ToLower(protocol)
		vars[prefix+"_PORT"] = number
		vars[prefix+"_ADDR"] = host
	}
}

func variableName(s string) string {
	return strings.ToUpper(strings.ReplaceAll(s, "-", "_"))
}
