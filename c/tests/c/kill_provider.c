/* Serves calls, snapshots and events without a pause, until its input ends or it is killed. */
#include "kill.h"

static int echo(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    (void)user;
    (void)caller;
    atomic_store(handled, number_of(request, len));
    return bw_answer_write(answer, request, len);
}

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract calls = BW_CONTRACT("echo", 1), snapshots = BW_CONTRACT("state", 1), events = BW_CONTRACT("tick", 1);
    bw_server_builder *builder = NULL;
    bw_publisher *publisher = NULL;
    bw_event_publisher *event_publisher = NULL;
    bw_server *server = NULL;
    static struct message message;
    CHECK(argc == 2);
    map_handled(argv[1]);
    OK(bw_server_builder_new(NULL, NULL, &builder, &error));
    OK(bw_server_builder_serve(builder, &calls, echo, NULL, NULL, &error));
    OK(bw_server_builder_publish(builder, &snapshots, &publisher, &error));
    OK(bw_server_builder_events(builder, &events, 0, &event_publisher, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    for (uint64_t number = 1; command(1) != -1; number++) {
        /* In the broadcast ring, and every eighth in memory of its own. */
        OK(bw_publisher_publish(publisher, &message, fill(&message, number, number % 8 ? 100 : 300000), NULL, &error));
        OK(bw_event_publisher_send(event_publisher, &message, fill(&message, number, number % 500), NULL, &error));
    }
    bw_server_stop(server);
    bw_publisher_free(publisher);
    bw_event_publisher_free(event_publisher);
    return 0;
}
