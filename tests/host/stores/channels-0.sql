PRAGMA application_id = 1146245938;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE hints (
    channel BLOB NOT NULL,
    hint BLOB NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (channel, hint)
) WITHOUT ROWID;
INSERT INTO "hints" VALUES(X'6F726368617264',X'68696E74',X'6D31');
CREATE TABLE messages (
    handle INTEGER PRIMARY KEY AUTOINCREMENT,
    channel BLOB NOT NULL,
    id BLOB NOT NULL,
    lamport BLOB NOT NULL,
    frame BLOB NOT NULL,
    logged INTEGER,
    held INTEGER,
    UNIQUE (channel, id)
);
INSERT INTO "messages" VALUES(1,X'6F726368617264',X'6D31',X'0000000000000001',X'6672616D652031',1,5);
INSERT INTO "messages" VALUES(2,X'6F726368617264',X'6D32',X'0000000000000002',X'6672616D652032',0,5);
CREATE INDEX by_time ON messages (channel, lamport, id);
CREATE INDEX waiting ON messages (channel, handle) WHERE logged = 0
;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',2);
COMMIT;
