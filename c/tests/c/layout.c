/* The structs of the header, as C and C++ lay them out: what is asserted in c/src/layout.rs, too. */
#include <bellwire.h>
#include <stddef.h>
#ifndef __cplusplus
#include <assert.h>
#endif

#define SIZE(type, size) static_assert(sizeof(type) == (size), #type)
#define OFFSET(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(bw_bytes, 16);
SIZE(bw_text, 16);
SIZE(bw_error, 512);
OFFSET(bw_error, code, 8);
OFFSET(bw_error, fault, 12);
OFFSET(bw_error, executed, 13);
OFFSET(bw_error, handler_code, 16);
OFFSET(bw_error, message, 20);
SIZE(bw_contract, 32);
OFFSET(bw_contract, version, 16);
OFFSET(bw_contract, schema, 24);
SIZE(bw_client_config, 72);
OFFSET(bw_client_config, token, 48);
SIZE(bw_server_config, 88);
OFFSET(bw_server_config, admit, 48);
SIZE(bw_reply, 32);
SIZE(bw_client_stats, 88);
SIZE(bw_server_stats, 120);
OFFSET(bw_server_stats, stalled, 88);
SIZE(bw_snapshot, 32);
SIZE(bw_delivery, 32);
OFFSET(bw_delivery, event, 16);
SIZE(bw_app, 88);
OFFSET(bw_app, started_ns, 16);
OFFSET(bw_app, cgroup_name, 56);
OFFSET(bw_app, pending, 80);
SIZE(bw_cgroup_details, 48);
OFFSET(bw_cgroup_details, labels, 40);
SIZE(bw_cgroup, 56);
OFFSET(bw_cgroup, options, 48);
OFFSET(bw_cgroup, enabled, 53);
OFFSET(bw_cgroup, labels, 54);

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("layout", 1);
    bw_client *client = NULL;
    int code = bw_client_new("/nowhere", &contract, NULL, &client, &error);
    bw_client_free(client);
    return code;
}
